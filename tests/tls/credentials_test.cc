// Files that cannot be used, and files that change.
#include <pty.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/base/steady_now.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"
#include "hawser/tls/context.h"

namespace {
std::atomic<time_t> set_back_s{0};
}

// The clock of this program, which a test may set back as one sets that of a machine.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  const long result = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec -= set_back_s;
  return static_cast<int>(result);
}

namespace hawser::tls {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class CredentialsTest : public ::testing::Test {
 protected:
  // Why Create() refuses the credentials. It names the file and tells nothing of what is in it.
  std::string WhyRefused(const TlsCredentials& credentials) {
    const absl::StatusOr<std::shared_ptr<Context>> context = Context::Create(credentials, nullptr);
    EXPECT_THAT(context.status(), HasCode(absl::StatusCode::kInvalidArgument));
    return std::string(context.status().message());
  }

  std::string NewFile(absl::string_view contents) {
    const std::string path = authority_.NewPath("file.pem");
    ReplaceFile(path, contents);
    return path;
  }

  CertificateAuthority authority_;
  TlsCredentials good_ = authority_.Issue();
};

TEST_F(CredentialsTest, AnEmptyPathIsNamed) {
  EXPECT_THAT(WhyRefused({}), HasSubstr("TlsCredentials::certificate is empty"));
  EXPECT_THAT(WhyRefused({.certificate = good_.certificate}), HasSubstr("TlsCredentials::key is empty"));
  EXPECT_THAT(WhyRefused({.certificate = good_.certificate, .key = good_.key}),
              HasSubstr("TlsCredentials::authorities is empty"));
}

TEST_F(CredentialsTest, AMissingFileIsNamed) {
  const std::string missing = authority_.NewPath("missing.pem");
  for (std::string TlsCredentials::*field :
       {&TlsCredentials::certificate, &TlsCredentials::key, &TlsCredentials::authorities}) {
    TlsCredentials credentials = good_;
    credentials.*field = missing;
    EXPECT_THAT(WhyRefused(credentials), AllOf(HasSubstr(missing), HasSubstr("no such file")));
  }
}

// In words that say what to do, not in OpenSSL's: "no start line".
TEST_F(CredentialsTest, AFileThatIsNoPemIsNamedWithTheReason) {
  const std::string certificate = ReadFile(good_.certificate);
  const std::string key = ReadFile(good_.key);
  const auto without_end = [](const std::string& pem) { return pem.substr(0, pem.find("-----END")); };
  const auto damaged = [](std::string pem) {
    pem.replace(pem.find('\n') + 1, 8, "********");
    return pem;
  };
  const struct {
    std::string contents;
    const char* as_certificate;
    const char* as_key;
  } files[] = {
      {"", "it is empty", "it is empty"},
      {" \n\t\r\n", "it is empty", "it is empty"},
      {"hello", "no line \"-----BEGIN CERTIFICATE-----\"", "no line \"-----BEGIN PRIVATE KEY-----\""},
      {std::string(100, '\0'), "it is no PEM file", "it is no PEM file"},
      {std::string(1 << 20, 'x'), "it is no PEM file", "it is no PEM file"},
      {"\x30\x82\x01\x02", "it is DER, and has to be PEM: openssl x509",
       "it is DER, and has to be PEM: openssl pkey"},
      {key, "it has a private key, and no certificate", nullptr},
      {certificate, nullptr, "it has a certificate, and no private key"},
      {"-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n",
       "it has a public key, and no certificate", "it has a public key, and no private key"},
      {"-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n",
       "it has a request for a certificate, and no certificate",
       "it has a request for a certificate, and no private key"},
      {"-----BEGIN secret-----\nMIIB\n-----END secret-----\n", "it has something else",
       "it has something else"},
      {without_end(certificate), "it ends within a certificate", "it has a certificate, and no private key"},
      {without_end(key), "it has a private key, and no certificate", "it ends within a private key"},
      {"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", "a certificate in it is damaged",
       "and no private key"},
      {damaged(certificate), "a certificate in it is damaged", "and no private key"},
      {damaged(key), "and no certificate", "a private key in it is damaged"},
      {certificate + without_end(certificate), "it ends within a certificate", "and no private key"},
  };
  const auto check = [&](std::string TlsCredentials::*field, const std::string& contents, const char* words) {
    if (words == nullptr) return;
    TlsCredentials credentials = good_;
    credentials.*field = NewFile(contents);
    const std::string why = WhyRefused(credentials);
    EXPECT_THAT(why, AllOf(HasSubstr(credentials.*field), HasSubstr(words)));
    for (const char* theirs :
         {"start line", "end line", "asn1", "ASN1", "base64", "PEM_", "no reason", "secret"}) {
      EXPECT_THAT(why, Not(HasSubstr(theirs)));
    }
    ExpectNoKeyIn(why, good_);
  };
  for (const auto& file : files) {
    check(&TlsCredentials::certificate, file.contents, file.as_certificate);
    check(&TlsCredentials::key, file.contents, file.as_key);
    if (absl::string_view(file.contents) != certificate + without_end(certificate)) {
      check(&TlsCredentials::authorities, file.contents, file.as_certificate);
    }
  }
}

TEST_F(CredentialsTest, AKeyThatCannotBeUsedForTlsIsRefused) {
  EXPECT_THAT(WhyRefused(authority_.Issue(LoopbackNames(), {.key_type = KeyType::kP224})),
              HasSubstr("TLS 1.3 cannot sign with its key: take RSA, ECDSA on P-256"));
  EXPECT_THAT(WhyRefused(authority_.Issue(LoopbackNames(), {.key_type = KeyType::kRsa1024})),
              HasSubstr("the key of its certificate is too small: RSA needs 2048 bits"));
  for (const KeyType type : {KeyType::kP256, KeyType::kP384, KeyType::kRsa2048, KeyType::kEd25519}) {
    const TlsCredentials fits = authority_.Issue(LoopbackNames(), {.key_type = type});
    Line line(fits, fits);
    line.Handshake();
    EXPECT_TRUE(line.is_up()) << line.client.status() << line.server.status();
  }
}

// What no client could accept. For a client's certificate the server decides.
TEST_F(CredentialsTest, ACertificateThatCannotServeIsRefusedForAServer) {
  const struct {
    CertificateNames names;
    CertificateOptions options;
    const char* why;
  } certificates[] = {
      {LoopbackNames(), {.not_after = -absl::Minutes(1)}, "it has expired at "},
      {LoopbackNames(), {.not_before = absl::Hours(1)}, "it is not valid before "},
      {LoopbackNames(),
       {.key_usage = "critical,keyEncipherment"},
       "its keyUsage does not allow digitalSignature"},
      {LoopbackNames(),
       {.extended_key_usage = "clientAuth"},
       "its extendedKeyUsage does not allow it for a server"},
      {{.common_name = "localhost"}, {}, "it has no subjectAltName"},
  };
  for (const auto& [names, options, why] : certificates) {
    const TlsCredentials credentials = authority_.Issue(names, options);
    const std::shared_ptr<Context> context = NewContext(credentials);
    const absl::Status status = context->UseForServer();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(credentials.certificate), HasSubstr(why)));
  }
  EXPECT_THAT(NewContext(good_)->UseForServer(), IsOk());
  EXPECT_THAT(NewContext(authority_.Issue({.uris = {"spiffe://example.org/kv"}}))->UseForServer(), IsOk());
}

// A pipe that nothing writes to would keep the program waiting, and a device may have no end.
TEST_F(CredentialsTest, WhatIsNoFileIsRefusedWithItsKind) {
  const std::string folder = authority_.NewPath("folder");
  ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
  const std::string pipe = authority_.NewPath("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = authority_.NewPath("link");
  ASSERT_EQ(symlink(pipe.c_str(), link.c_str()), 0);
  sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ""};
  // Not in TEST_TMPDIR: the path of a socket has 107 characters at most.
  char short_folder[] = "/tmp/hawser_credentials_XXXXXX";
  ASSERT_NE(mkdtemp(short_folder), nullptr);
  const std::string socket_path = std::string(short_folder) + "/socket";
  socket_path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const UniqueFd bound(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(bind(bound.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  const std::pair<std::string, std::string> kinds[] = {{folder, "it is a folder"},
                                                       {pipe, "it is a pipe"},
                                                       {link, "it is a pipe"},
                                                       {socket_path, "it is a socket"},
                                                       {"/dev/zero", "it is a device"}};
  for (std::string TlsCredentials::*field :
       {&TlsCredentials::certificate, &TlsCredentials::key, &TlsCredentials::authorities}) {
    for (const auto& [path, kind] : kinds) {
      TlsCredentials credentials = good_;
      credentials.*field = path;
      EXPECT_THAT(WhyRefused(credentials), AllOf(HasSubstr(path), HasSubstr(kind)));
    }
  }
  EXPECT_EQ(unlink(socket_path.c_str()), 0);
  EXPECT_EQ(rmdir(short_folder), 0);
}

TEST_F(CredentialsTest, AFileHasABound) {
  std::string contents = ReadFile(good_.authorities);
  while (contents.size() <= 4 << 20) contents += std::string(100, '#') + "\n";
  contents.resize((4 << 20) + 1);
  TlsCredentials credentials = good_;
  credentials.authorities = NewFile(contents);
  EXPECT_THAT(WhyRefused(credentials),
              AllOf(HasSubstr(credentials.authorities),
                    HasSubstr("it has 4194305 bytes, and 4194304 at most are read")));
  contents.pop_back();
  credentials.authorities = NewFile(contents);
  EXPECT_THAT(Context::Create(credentials, nullptr), IsOk());
}

TEST_F(CredentialsTest, SwappedFilesAreNamed) {
  TlsCredentials swapped = good_;
  std::swap(swapped.certificate, swapped.key);
  EXPECT_THAT(WhyRefused(swapped), HasSubstr("TlsCredentials::certificate"));
  swapped = good_;
  swapped.authorities = good_.key;
  const std::string why = WhyRefused(swapped);
  EXPECT_THAT(why, HasSubstr("TlsCredentials::authorities"));
  ExpectNoKeyIn(why, good_);
}

TEST_F(CredentialsTest, AKeyThatDoesNotFitIsNamed) {
  for (const KeyType type : {KeyType::kP256, KeyType::kRsa2048, KeyType::kEd25519}) {
    const TlsCredentials other = authority_.Issue({}, {.key_type = type, .has_other_key = true});
    EXPECT_THAT(WhyRefused(other), AllOf(HasSubstr(other.key), HasSubstr("not the key of the certificate")));
  }
  TlsCredentials mixed = good_;
  mixed.key = authority_.Issue({}, {.key_type = KeyType::kRsa2048}).key;
  EXPECT_THAT(WhyRefused(mixed), HasSubstr("not the key of the certificate"));
}

// Cut, or with one letter changed: a key is never quoted.
TEST_F(CredentialsTest, ADamagedKeyIsRefusedWithoutAWordOfIt) {
  for (const KeyType type : {KeyType::kP256, KeyType::kRsa2048, KeyType::kEd25519}) {
    const TlsCredentials credentials = authority_.Issue({}, {.key_type = type});
    const std::string pem = ReadFile(credentials.key);
    for (size_t i = 0; i + 1 < pem.size(); i += 7) {
      std::string changed = pem;
      changed[i] = changed[i] == 'A' ? 'B' : 'A';
      for (const std::string& text : {pem.substr(0, i), changed}) {
        TlsCredentials damaged = credentials;
        damaged.key = NewFile(text);
        // Some changes leave a key that fits: those of its attributes, or of nothing.
        const absl::Status status = Context::Create(damaged, nullptr).status();
        ExpectNoKeyIn(status.message(), credentials);
        EXPECT_LE(status.message().size(), 1000u);
      }
    }
  }
}

// The child has a terminal, on which OpenSSL by itself would ask for the passphrase.
TEST_F(CredentialsTest, AnEncryptedKeyIsRefusedAndTheTerminalIsLeftAlone) {
  const TlsCredentials encrypted = authority_.Issue({}, {.passphrase = "secret"});
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(30);
    const absl::Status status = Context::Create(encrypted, nullptr).status();
    _exit(status.code() == absl::StatusCode::kInvalidArgument &&
                  status.message().find("is encrypted") != absl::string_view::npos
              ? 0
              : 1);
  }
  std::string said;
  char buffer[1000];
  ssize_t n;
  while ((n = read(terminal, buffer, sizeof(buffer))) > 0) said.append(buffer, static_cast<size_t>(n));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  close(terminal);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(said, "");
  EXPECT_THAT(WhyRefused(encrypted), AllOf(HasSubstr(encrypted.key), HasSubstr("is encrypted")));
}

TEST_F(CredentialsTest, TheSameCredentialsShareAContext) {
  const std::shared_ptr<Context> first = NewContext(good_);
  EXPECT_EQ(NewContext(good_), first);
  TlsCredentials other = good_;
  other.server_name = "kv.example.org";
  EXPECT_NE(NewContext(other), first);
}

TEST_F(CredentialsTest, AContextWithoutUserIsReadAgain) {
  std::weak_ptr<Context> first = NewContext(good_);
  EXPECT_TRUE(first.expired());
  OverwriteFile(good_.key, "no key");
  EXPECT_THAT(WhyRefused(good_), HasSubstr(good_.key));
}

TEST_F(CredentialsTest, FilesThatAreRefusedAreUsedOnceTheyAreMended) {
  const std::string key = ReadFile(good_.key);
  OverwriteFile(good_.key, "no key");
  WhyRefused(good_);
  OverwriteFile(good_.key, key);
  EXPECT_THAT(Context::Create(good_, nullptr), IsOk());
}

// Files that change while a context is in use. A context looks at most once in a while, so a test waits for
// that.
class ReloadTest : public CredentialsTest {
 protected:
  // The names that a server with `context_` shows now.
  std::vector<std::string> NamesShown() {
    Line line(reader_, context_);
    line.Handshake();
    if (!line.is_up()) {
      // A client does not believe certificates of another authority; it hears of them by its error.
      return {std::string(line.client.status().message())};
    }
    return line.client.session().peer_identity()->dns_names;
  }
  // Until the condition holds, with a handshake each time.
  bool Until(const std::function<bool()>& condition) {
    const absl::Duration end = SteadyNow() + absl::Seconds(20);
    do {
      if (condition()) return true;
      absl::SleepFor(absl::Milliseconds(5));
    } while (SteadyNow() < end);
    return false;
  }
  void Renew(const std::string& name, CertificateOptions options = {}) {
    options.certificate_path = good_.certificate;
    options.key_path = good_.key;
    authority_.Issue({.dns = {"localhost", name}}, options);
  }

  std::vector<absl::Status> stale_;
  std::shared_ptr<Context> context_ = NewContext(good_, &stale_);
  // Another than that of the server, though the files are the same.
  TlsCredentials client_ = authority_.Issue();
  std::shared_ptr<Context> reader_ = NewContext(client_);
};

TEST_F(ReloadTest, OverwrittenFilesAreUsed) {
  EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
  Renew("new", {.replaces_files = false});
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
  EXPECT_THAT(stale_, IsEmpty());
}

TEST_F(ReloadTest, RenamedFilesAreUsed) {
  EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
  Renew("new");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
  Renew("newer");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "newer"}; }));
}

TEST_F(ReloadTest, FilesBehindASymbolicLinkAreUsed) {
  // As of a volume of Kubernetes: the link is replaced, and both files change at once.
  const std::string link = authority_.NewPath("current");
  const auto fill = [&](const std::string& name) {
    const std::string folder = authority_.NewPath("version");
    EXPECT_EQ(mkdir(folder.c_str(), 0700), 0);
    authority_.Issue({.dns = {"localhost", name}},
                     {.certificate_path = folder + "/certificate.pem", .key_path = folder + "/key.pem"});
    EXPECT_EQ(symlink(folder.c_str(), (link + ".new").c_str()), 0);
    EXPECT_EQ(rename((link + ".new").c_str(), link.c_str()), 0);
  };
  fill("old");
  context_ = NewContext({.certificate = link + "/certificate.pem",
                         .key = link + "/key.pem",
                         .authorities = authority_.authorities_path()},
                        &stale_);
  EXPECT_THAT(NamesShown(), ElementsAre("localhost", "old"));
  fill("new");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
  EXPECT_THAT(stale_, IsEmpty());
}

TEST_F(ReloadTest, FilesAreLookedAtThoughTheClockWasSetBack) {
  EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
  const absl::Time before = absl::Now();
  set_back_s = 3600;
  // absl::Now() counts the processor's ticks, and reads the clock now and then.
  ASSERT_TRUE(Until([&] { return absl::Now() < before; }));
  Renew("new", {.not_before = -absl::Hours(1)});
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
  set_back_s = 0;
  EXPECT_TRUE(Until([&] { return absl::Now() >= before; })) << "other tests would see the clock jump";
}

TEST_F(ReloadTest, BrokenFilesLeaveTheOldInUseAndAreToldOnce) {
  Renew("broken", {.has_other_key = true});
  EXPECT_TRUE(Until([this] {
    EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
    return !stale_.empty();
  }));
  EXPECT_THAT(std::string(stale_[0].message()), AllOf(HasSubstr(good_.key), HasSubstr("not the key")));
  // Some looks later it was told once.
  const absl::Time end = absl::Now() + 2.5 * Context::kLookInterval;
  EXPECT_TRUE(Until([&] {
    EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
    return absl::Now() > end;
  }));
  EXPECT_THAT(stale_, SizeIs(1));
  // Another change is told again.
  OverwriteFile(good_.certificate, "no certificate");
  EXPECT_TRUE(Until([this] {
    EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
    return stale_.size() == 2;
  }));
  // Removed.
  ASSERT_EQ(unlink(good_.certificate.c_str()), 0);
  EXPECT_TRUE(Until([this] {
    EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
    return stale_.size() == 3;
  }));
  EXPECT_THAT(std::string(stale_[2].message()), HasSubstr("no such file"));
  Renew("mended");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "mended"}; }));
  EXPECT_THAT(stale_, SizeIs(3));
  // The same as before, and no less of a fault.
  ASSERT_EQ(unlink(good_.certificate.c_str()), 0);
  EXPECT_TRUE(Until([this] {
    NamesShown();
    return stale_.size() == 4;
  }));
}

TEST_F(ReloadTest, APipeInThePlaceOfAFileKeepsNoHandshakeWaiting) {
  ASSERT_EQ(unlink(good_.key.c_str()), 0);
  ASSERT_EQ(mkfifo(good_.key.c_str(), 0600), 0);
  EXPECT_TRUE(Until([this] {
    EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
    return !stale_.empty();
  }));
  EXPECT_THAT(std::string(stale_[0].message()), AllOf(HasSubstr(good_.key), HasSubstr("it is a pipe")));
}

TEST_F(ReloadTest, AServerDoesNotGoOverToACertificateThatCannotServe) {
  ASSERT_THAT(context_->UseForServer(), IsOk());
  Renew("expired", {.not_after = -absl::Minutes(1)});
  EXPECT_TRUE(Until([this] {
    EXPECT_THAT(NamesShown(), ElementsAre("localhost"));
    return !stale_.empty();
  }));
  EXPECT_THAT(std::string(stale_[0].message()),
              AllOf(HasSubstr(good_.certificate), HasSubstr("it has expired at ")));
  Renew("new");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
}

TEST_F(ReloadTest, ACertificateThatIsNotValidYetIsUsedOnceItIs) {
  ASSERT_THAT(context_->UseForServer(), IsOk());
  // The first look has to find a certificate that is not valid yet. The time is in whole seconds, so a busy
  // machine may hold this test for three seconds beyond the interval.
  Renew("soon", {.not_before = 5 * Context::kLookInterval});
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "soon"}; }));
  ASSERT_THAT(stale_, SizeIs(1));
  EXPECT_THAT(std::string(stale_[0].message()), HasSubstr("it is not valid before "));
}

TEST_F(ReloadTest, AServerChecksTheFilesAsTheyAreWhenItStarts) {
  context_.reset();
  Renew("client", {.extended_key_usage = "clientAuth"});
  // A server that starts reads files again that were new when they were read, and reports them here if they
  // cannot serve. These are old, so a slow test sees nothing of that.
  for (const std::string& path : {good_.certificate, good_.key, good_.authorities}) MakeOld(path);
  context_ = NewContext(good_, &stale_);
  EXPECT_THAT(context_->UseForServer(), Not(IsOk()));
  Renew("new");
  EXPECT_THAT(context_->UseForServer(), IsOk());
  EXPECT_THAT(NamesShown(), ElementsAre("localhost", "new"));
  EXPECT_THAT(stale_, IsEmpty());
}

TEST_F(ReloadTest, ChangedAuthoritiesAreUsed) {
  const CertificateAuthority other("other authority");
  const TlsCredentials stranger = other.Issue({}, {.authorities = authority_.authorities_path()});
  const std::shared_ptr<Context> strange = NewContext(stranger);
  const auto is_accepted = [&] {
    Line line(strange, context_);
    line.Handshake();
    return line.is_up();
  };
  EXPECT_FALSE(is_accepted());
  ReplaceFile(good_.authorities, authority_.pem() + other.pem());
  EXPECT_TRUE(Until(is_accepted));
  ReplaceFile(good_.authorities, authority_.pem());
  EXPECT_TRUE(Until([&] { return !is_accepted(); }));
}

TEST_F(ReloadTest, SessionsThatAreUpStayUp) {
  Line line(reader_, context_);
  line.Handshake();
  ASSERT_TRUE(line.is_up());
  Renew("new");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
  EXPECT_EQ(Transfer(line.client, line.server, "still here"), "still here");
  EXPECT_EQ(Transfer(line.server, line.client, "so am I"), "so am I");
}

TEST_F(ReloadTest, AHandshakeThatHasBegunEndsWithTheOldFiles) {
  Line line(reader_, context_);
  line.client.Step();
  Renew("new");
  EXPECT_TRUE(Until([this] { return NamesShown() == std::vector<std::string>{"localhost", "new"}; }));
  line.Handshake();
  ASSERT_TRUE(line.is_up()) << line.client.status() << line.server.status();
  EXPECT_THAT(line.client.session().peer_identity()->dns_names, ElementsAre("localhost"));
}

}  // namespace
}  // namespace hawser::tls
