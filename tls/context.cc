#include "hawser/tls/context.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/fork.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tls/certificate.h"
#include "hawser/tls/pem_file.h"
#include "hawser/tls/session.h"

namespace hawser::tls {
namespace {

constexpr unsigned char kAlpn[] = "\x08hawser/1";
constexpr size_t kAlpnBytes = sizeof(kAlpn) - 1;

// Of what a peer sends as its certificates. OpenSSL's own limit is 100 KiB, which each peer that has not
// shown who it is could make this side hold. Chains of RSA with 4,096 bits take some 6 KiB.
constexpr long kCertificatesBytesMax = 32 * 1024;

// How long a session can be resumed after the handshake that showed the certificates.
constexpr absl::Duration kResumptionMax = absl::Hours(1);

constexpr size_t kTicketsPerPeerMax = 4;
constexpr size_t kTicketPeersMax = 256;

// Of each of the three files, which a poller's thread may read. The authorities that browsers trust have 0.3
// MB.
constexpr off_t kFileBytesMax = 4 << 20;

// A file that changed so recently can change again without a new time stamp: kernels count in ticks of up to
// 10 ms.
constexpr int64_t kSettledNs = 100'000'000;

// Begins the only part of an error that changes from look to look while the files are the same.
constexpr absl::string_view kByOurClock = ", by our clock it is ";

absl::Status FileError(absl::string_view what, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("TlsCredentials::", what, ": ", path, ": ", why));
}

// Why a call of OpenSSL has failed.
struct OpenSslError {
  int library = 0;
  int reason = 0;
  std::string text;
};

// Clears OpenSSL's queue of errors. What the last one says is usually that the one before happened.
OpenSslError TakeError() {
  OpenSslError error{.text = "no reason given"};
  bool is_first = true;
  for (unsigned long code; (code = ERR_get_error()) != 0;) {
    const char* reason = ERR_reason_error_string(code);
    if (!std::exchange(is_first, false) || reason == nullptr) continue;
    error = {ERR_GET_LIB(code), ERR_GET_REASON(code), reason};
  }
  return error;
}

// Of what is no file.
absl::string_view KindOf(mode_t mode) {
  return S_ISDIR(mode)                    ? "a folder"
         : S_ISFIFO(mode)                 ? "a pipe"
         : S_ISSOCK(mode)                 ? "a socket"
         : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                          : "something else";
}

// That it can be opened and read without waiting for another process, and in short time.
absl::Status CheckReadable(absl::string_view what, const std::string& path) {
  if (path.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("TlsCredentials::", what, " is empty: it is the path of a PEM file"));
  }
  // Without O_NONBLOCK the open of a pipe waits until something opens it to write.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  const int error = file.is_open() ? 0 : errno;
  struct stat info = {};
  // A socket cannot be opened.
  const int looked = file.is_open() ? fstat(file.get(), &info) : stat(path.c_str(), &info);
  if (looked == 0 && !S_ISREG(info.st_mode)) {
    return FileError(
        what, path,
        absl::StrCat("it is ", KindOf(info.st_mode),
                     ", and has to be a file, since it is read again when it changes",
                     S_ISFIFO(info.st_mode) ? ": write what comes through the pipe to a file" : ""));
  }
  if (error != 0) return FileError(what, path, DescribeErrno(error));
  if (looked == 0 && info.st_size > kFileBytesMax) {
    return FileError(
        what, path,
        absl::StrCat("it has ", info.st_size, " bytes, and ", kFileBytesMax, " at most are read"));
  }
  return absl::OkStatus();
}

// The beginning of a file: more than any certificate has.
std::string ReadBeginning(const std::string& path) {
  std::string contents(1 << 20, '\0');
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "re"), std::fclose);
  contents.resize(file == nullptr ? 0 : std::fread(contents.data(), 1, contents.size(), file.get()));
  return contents;
}

// What TLS 1.3 can sign a handshake with (RFC 8446, 4.2.3), of what OpenSSL takes for a certificate.
bool CanSign(const EVP_PKEY* key) {
  if (key == nullptr || EVP_PKEY_is_a(key, "EC") != 1) {
    return key != nullptr && (EVP_PKEY_is_a(key, "RSA") == 1 || EVP_PKEY_is_a(key, "RSA-PSS") == 1 ||
                              EVP_PKEY_is_a(key, "ED25519") == 1 || EVP_PKEY_is_a(key, "ED448") == 1);
  }
  char group[64] = "";
  if (EVP_PKEY_get_group_name(key, group, sizeof(group), nullptr) != 1) return false;
  const int nid = OBJ_txt2nid(group);
  return nid == NID_X9_62_prime256v1 || nid == NID_secp384r1 || nid == NID_secp521r1;
}

constexpr absl::string_view kCannotSign =
    "TLS 1.3 cannot sign with its key: take RSA, ECDSA on P-256, P-384 or P-521, Ed25519 or Ed448";

// Why a file cannot be used, and what to do about it. OpenSSL's own texts ("no start line") do not name the
// mistake.
std::string InOurWords(const OpenSslError& error, const std::string& path, PemKind wanted) {
  if (error.library == ERR_LIB_SSL) {
    switch (error.reason) {
      case SSL_R_EE_KEY_TOO_SMALL:
      case SSL_R_CA_KEY_TOO_SMALL:
        return absl::StrCat("the key of ", error.reason == SSL_R_EE_KEY_TOO_SMALL ? "its" : "an authority's",
                            " certificate is too small: RSA needs 2048 bits, ECDSA 256");
      case SSL_R_CA_MD_TOO_WEAK:
        return "it is signed by way of a digest that is too weak, such as SHA-1: have it issued with SHA-256";
      case SSL_R_UNKNOWN_CERTIFICATE_TYPE:
        return std::string(kCannotSign);
      default:
        break;
    }
  }
  return WhyUnreadable(ReadBeginning(path), wanted);
}

bool IsIpAddress(const std::string& text) {
  in6_addr address;
  return inet_pton(AF_INET, text.c_str(), &address) == 1 || inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

// A key that is encrypted: OpenSSL would ask for the password on the terminal.
int NoPassword(char*, int, int, void*) { return -1; }

int SelectAlpn(SSL*, const unsigned char** out, unsigned char* out_bytes, const unsigned char* in,
               unsigned int in_bytes, void*) {
  unsigned char* selected;
  if (SSL_select_next_proto(&selected, out_bytes, kAlpn, kAlpnBytes, in, in_bytes) !=
      OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = selected;
  return SSL_TLSEXT_ERR_OK;
}

// A client that does not ask for a protocol would not be asked either.
int RequireAlpn(SSL* ssl, int* alert, void*) {
  const unsigned char* data;
  size_t bytes;
  if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &data, &bytes) ==
      1) {
    return SSL_CLIENT_HELLO_SUCCESS;
  }
  *alert = SSL_AD_NO_APPLICATION_PROTOCOL;
  return SSL_CLIENT_HELLO_ERROR;
}

// What the peer gets to see of this side's certificates.
size_t BytesOfCertificates(SSL_CTX* context) {
  size_t bytes = 0;
  const auto add = [&](X509* certificate) {
    bytes += static_cast<size_t>(std::max(i2d_X509(certificate, nullptr), 0));
  };
  add(SSL_CTX_get0_certificate(context));
  STACK_OF(X509)* chain = nullptr;
  SSL_CTX_get0_chain_certs(context, &chain);
  for (int i = 0; i < sk_X509_num(chain); ++i) add(sk_X509_value(chain, i));
  return bytes;
}

// Tickets of a server: sealed with a key of the SSL_CTX, so a reading of the files makes all of them void.
// What is in one says until when the certificates that the client has shown are valid: when the ticket comes
// back, only the client's own certificate is in it, and OpenSSL does not look at its time again.
int SealTicket(SSL* ssl, void*) {
  SSL_SESSION* const session = SSL_get_session(ssl);
  const STACK_OF(X509)* const chain = SSL_get0_verified_chain(ssl);
  if (chain == nullptr) return 1;  // It was resumed itself: what was said first goes on.
  const int64_t end = absl::ToUnixSeconds(std::min(EndOf(*chain), absl::Now() + kResumptionMax));
  return SSL_SESSION_set1_ticket_appdata(session, &end, sizeof(end));
}

SSL_TICKET_RETURN OpenTicket(SSL*, SSL_SESSION* session, const unsigned char*, size_t,
                             SSL_TICKET_STATUS status, void*) {
  if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
    return SSL_TICKET_RETURN_IGNORE_RENEW;
  void* data = nullptr;
  size_t bytes = 0;
  int64_t end = 0;
  if (SSL_SESSION_get0_ticket_appdata(session, &data, &bytes) != 1 || bytes != sizeof(end)) {
    return SSL_TICKET_RETURN_IGNORE_RENEW;
  }
  std::memcpy(&end, data, sizeof(end));
  return absl::FromUnixSeconds(end) > absl::Now() ? SSL_TICKET_RETURN_USE_RENEW
                                                  : SSL_TICKET_RETURN_IGNORE_RENEW;
}

}  // namespace

void SslDeleter::operator()(ssl_ctx_st* context) const { SSL_CTX_free(context); }
void SslDeleter::operator()(ssl_session_st* session) const { SSL_SESSION_free(session); }
void SslDeleter::operator()(ssl_st* ssl) const { SSL_free(ssl); }

absl::StatusOr<std::shared_ptr<Context>> Context::Create(
    const TlsCredentials& credentials, std::function<void(const absl::Status& why)> on_stale) {
  // Pollers run until the process ends, so they may use OpenSSL during exit(), which must not clean it up.
  // Without effect if the program has used OpenSSL before.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  struct Contexts {
    Mutex mutex;
    std::map<Key, std::weak_ptr<Context>> all;
  };
  // A child after fork() has its own: tickets are used once, and a poller of the parent may have held a lock.
  static constinit PerProcess<Contexts> contexts;
  const Key key(credentials.certificate, credentials.key, credentials.authorities, credentials.server_name);
  Contexts& known = contexts.Get();
  {
    MutexLock lock(known.mutex);
    if (const auto found = known.all.find(key); found != known.all.end()) {
      if (std::shared_ptr<Context> context = found->second.lock()) return context;
    }
  }
  // Not under the lock: a file may be on a disk that does not answer.
  auto context = std::make_shared<Context>(credentials, std::move(on_stale));
  if (absl::Status status = context->Start(); !status.ok()) return status;
  MutexLock lock(known.mutex);
  for (auto each = known.all.begin(); each != known.all.end();) {
    each = each->second.expired() ? known.all.erase(each) : std::next(each);
  }
  std::weak_ptr<Context>& slot = known.all[key];
  if (std::shared_ptr<Context> other = slot.lock()) return other;  // Another thread was faster.
  slot = context;
  return context;
}

Context::Context(const TlsCredentials& credentials, std::function<void(const absl::Status& why)> on_stale)
    : credentials_(credentials), on_stale_(std::move(on_stale)) {}

absl::Status Context::Start() {
  const Stamps stamps = Look();
  absl::StatusOr<SslContextPtr> loaded = Load();
  if (!loaded.ok()) return loaded.status();
  MutexLock lock(mutex_);
  stamps_ = stamps;
  current_ = *std::move(loaded);
  next_look_ = absl::Now() + kLookInterval;
  return absl::OkStatus();
}

Context::Stamps Context::Look() const {
  const int64_t now_ns = absl::ToUnixNanos(absl::Now());
  const auto look = [&](const std::string& path) {
    struct stat info = {};
    if (stat(path.c_str(), &info) != 0) return Stamp{};
    Stamp stamp = {.device = info.st_dev,
                   .inode = info.st_ino,
                   .bytes = info.st_size,
                   .modified_ns = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
    // Equal to no stamp that is taken later.
    if (now_ns - stamp.modified_ns < kSettledNs) stamp.bytes = -1;
    return stamp;
  };
  return {.certificate = look(credentials_.certificate),
          .key = look(credentials_.key),
          .authorities = look(credentials_.authorities)};
}

// What no client could accept from any authority.
absl::Status Context::CheckServes(SSL_CTX* context) const {
  X509* const certificate = SSL_CTX_get0_certificate(context);
  const auto refuse = [&](absl::string_view why) {
    return FileError("certificate", credentials_.certificate,
                     absl::StrCat("no server can use this ", DescribeCertificate(*certificate), ": ", why));
  };
  const absl::Time now = absl::Now();
  const auto in_utc = [](absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); };
  if (const absl::Time end = EndOf(*certificate); end <= now) {
    return refuse(absl::StrCat("it has expired at ", in_utc(end), kByOurClock, in_utc(now)));
  }
  if (const absl::Time begin = BeginOf(*certificate); begin > now) {
    return refuse(absl::StrCat("it is not valid before ", in_utc(begin), kByOurClock, in_utc(now)));
  }
  if ((X509_get_key_usage(certificate) & KU_DIGITAL_SIGNATURE) == 0) {
    return refuse("its keyUsage does not allow digitalSignature, which TLS 1.3 needs to prove the identity");
  }
  if (X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return refuse("its extendedKeyUsage does not allow it for a server (serverAuth)");
  }
  if (!IdentityOf(*certificate).has_names()) {
    return refuse("it has no subjectAltName: clients look for the name of the server there only");
  }
  return absl::OkStatus();
}

absl::Status Context::UseForServer() {
  bool served_before;
  {
    MutexLock lock(mutex_);
    served_before = std::exchange(serves_, true);  // Refresh() does not use files that cannot serve.
    next_look_ = absl::Now() + kLookInterval;      // Other threads do not look meanwhile.
  }
  // A client may have read the files long ago.
  Refresh();
  MutexLock lock(mutex_);
  absl::Status status = CheckServes(current_.get());
  if (!status.ok()) serves_ = served_before;
  return status;
}

absl::StatusOr<SslContextPtr> Context::Load() const {
  for (const auto& [what, path] :
       {std::pair<absl::string_view, const std::string&>("certificate", credentials_.certificate),
        {"key", credentials_.key},
        {"authorities", credentials_.authorities}}) {
    if (absl::Status status = CheckReadable(what, path); !status.ok()) return status;
  }
  ERR_clear_error();
  SslContextPtr context(SSL_CTX_new(TLS_method()));
  if (context == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("TLS: SSL_CTX_new(): ", TakeError().text));
  SSL_CTX* const ssl = context.get();
  SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION);
  SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION);
  // 128 bits first: a third faster, and no less than what the certificates' keys are worth.
  SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
  SSL_CTX_set_security_level(ssl, 2);  // 112 bits, whatever the machine's configuration of OpenSSL says.
  // Without finite fields, which OpenSSL offers as well: the peer chooses the group before it is
  // authenticated, and one operation in the largest takes 0.1 s. X25519 takes 0.1 ms.
  if (SSL_CTX_set1_groups_list(ssl, "X25519:P-256") != 1) {
    return absl::ResourceExhaustedError(absl::StrCat("TLS: groups: ", TakeError().text));
  }
  // The end of a connection means nothing to what is above, so it need not be signed (close_notify).
  SSL_CTX_set_options(ssl, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_CIPHER_SERVER_PREFERENCE |
                               SSL_OP_PRIORITIZE_CHACHA | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(ssl, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_mode(
      ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(ssl, kCertificatesBytesMax);

  SSL_CTX_set_default_passwd_cb(ssl, NoPassword);
  if (SSL_CTX_use_certificate_chain_file(ssl, credentials_.certificate.c_str()) != 1) {
    return FileError("certificate", credentials_.certificate,
                     InOurWords(TakeError(), credentials_.certificate, PemKind::kCertificate));
  }
  if (!CanSign(X509_get0_pubkey(SSL_CTX_get0_certificate(ssl)))) {
    return FileError("certificate", credentials_.certificate, kCannotSign);
  }
  if (const size_t bytes = BytesOfCertificates(ssl); bytes > static_cast<size_t>(kCertificatesBytesMax)) {
    return FileError(
        "certificate", credentials_.certificate,
        absl::StrCat(bytes, " bytes of certificates, of which peers accept ", kCertificatesBytesMax));
  }
  if (const std::string why = TooManyNames(IdentityOf(*SSL_CTX_get0_certificate(ssl))); !why.empty()) {
    return FileError("certificate", credentials_.certificate, why);
  }
  if (SSL_CTX_use_PrivateKey_file(ssl, credentials_.key.c_str(), SSL_FILETYPE_PEM) != 1) {
    const OpenSslError error = TakeError();
    return FileError(
        "key", credentials_.key,
        absl::StrContains(error.text, "mismatch") ? "it is not the key of the certificate"
        : absl::StrContains(error.text, "password") || absl::StrContains(error.text, "interrupted")
            ? "it is encrypted: give one that is not, and let nobody else read it"
            : InOurWords(error, credentials_.key, PemKind::kPrivateKey));
  }
  if (SSL_CTX_check_private_key(ssl) != 1) {
    ERR_clear_error();
    return FileError("key", credentials_.key, "it is not the key of the certificate");
  }
  if (SSL_CTX_load_verify_locations(ssl, credentials_.authorities.c_str(), nullptr) != 1) {
    return FileError("authorities", credentials_.authorities,
                     InOurWords(TakeError(), credentials_.authorities, PemKind::kCertificate));
  }
  SSL_CTX_set_verify(
      ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, [](int ok, X509_STORE_CTX* verification) {
        const auto* const each =
            static_cast<SSL*>(X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
        return static_cast<Session*>(SSL_get_app_data(each))->OnVerified(ok == 1, *verification);
      });

  // The session keeps two of the secrets, for the kernel, and nothing else sees them.
  SSL_CTX_set_keylog_callback(ssl, [](const SSL* each, const char* line) {
    static_cast<Session*>(SSL_get_app_data(each))->OnSecret(line);
  });

  SSL_CTX_set_client_hello_cb(ssl, RequireAlpn, nullptr);
  SSL_CTX_set_alpn_select_cb(ssl, SelectAlpn, nullptr);
  if (SSL_CTX_set_alpn_protos(ssl, kAlpn, kAlpnBytes) != 0) {
    return absl::ResourceExhaustedError("TLS: no memory");
  }
  // A server keeps no session. A client keeps them itself, see Session::KeepTicket().
  SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_set_session_id_context(ssl, kAlpn, kAlpnBytes);
  SSL_CTX_set_timeout(ssl, absl::ToInt64Seconds(kResumptionMax));
  // Each connection brings the ticket for the one that replaces it. OpenSSL would send two, and the second
  // takes a twelfth of what a full handshake takes.
  SSL_CTX_set_num_tickets(ssl, 1);
  SSL_CTX_set_session_ticket_cb(ssl, SealTicket, OpenTicket, nullptr);
  SSL_CTX_sess_set_new_cb(ssl, [](SSL* each, SSL_SESSION* session) {
    static_cast<Session*>(SSL_get_app_data(each))->KeepTicket(*session);
    return 0;  // It stays OpenSSL's.
  });
  return context;
}

Context::Handshakes Context::handshakes(Side side) const {
  const HandshakeCounts& counts = counts_[side == Side::kClient ? 0 : 1];
  return {counts.full.load(std::memory_order_relaxed), counts.resumed.load(std::memory_order_relaxed),
          counts.failed.load(std::memory_order_relaxed)};
}

SslContextPtr Context::Current(uint64_t* generation) {
  bool is_due = false;
  {
    MutexLock lock(mutex_);
    const absl::Time now = absl::Now();
    is_due = now >= next_look_;
    // Other threads do not look meanwhile, nor wait for this one.
    if (is_due) next_look_ = now + kLookInterval;
  }
  if (is_due) Refresh();
  MutexLock lock(mutex_);
  SSL_CTX_up_ref(current_.get());
  *generation = generation_;
  return SslContextPtr(current_.get());
}

void Context::Refresh() {
  // Before the files are read: what changes meanwhile is found at the next look.
  const Stamps stamps = Look();
  bool serves;
  {
    MutexLock lock(mutex_);
    if (stamps == stamps_) return;
    stamps_ = stamps;
    serves = serves_;
  }
  absl::StatusOr<SslContextPtr> loaded = Load();
  bool retries = false;
  if (loaded.ok() && serves) {
    if (absl::Status status = CheckServes(loaded->get()); !status.ok()) {
      loaded = std::move(status);
      retries = true;
    }
  }
  {
    MutexLock lock(mutex_);
    // The certificate may become valid while the files stay the same, so the next look reads them again.
    if (retries) stamps_.certificate.bytes = -1;
    if (loaded.ok()) {
      current_ = *std::move(loaded);
      ++generation_;
      tickets_.clear();
      stale_.clear();
      return;
    }
    const absl::string_view message = loaded.status().message();
    const absl::string_view why = message.substr(0, message.find(kByOurClock));
    if (stale_ == why) return;
    stale_ = std::string(why);
  }
  if (on_stale_ != nullptr) on_stale_(loaded.status());
}

absl::StatusOr<std::unique_ptr<Session>> Context::NewSession(Side side, int fd, absl::string_view host,
                                                             absl::string_view peer) {
  Session::Parts parts = {.context = shared_from_this(), .side = side, .fd = fd};
  const SslContextPtr context = Current(&parts.generation);
  ERR_clear_error();
  parts.ssl.reset(SSL_new(context.get()));
  if (parts.ssl == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("TLS: SSL_new(): ", TakeError().text));
  SSL* const ssl = parts.ssl.get();
  if (side == Side::kServer) {
    SSL_set_accept_state(ssl);
    return std::make_unique<Session>(std::move(parts));
  }

  SSL_set_connect_state(ssl);
  std::string name = credentials_.server_name.empty() ? std::string(host) : credentials_.server_name;
  // The scope of a link-local address says how it is reached, not whose it is.
  if (const size_t scope = name.find('%'); scope != std::string::npos && absl::StrContains(name, ':')) {
    if (IsIpAddress(name.substr(0, scope))) name.resize(scope);
  }
  bool named = false;
  if (IsIpAddress(name)) {
    named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name.c_str()) == 1;
  } else if (absl::StrContains(name, ':')) {
    named = parts.name_is_uri = true;  // See Session::OnVerified().
  } else {
    // RFC 9525: no wildcard but a whole label, and a name that ends in a dot is the same as one without.
    if (absl::EndsWith(name, ".")) name.pop_back();
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    // To OpenSSL a dot in front means any name below.
    named = !name.empty() && name.front() != '.' && name.find('\0') == std::string::npos &&
            SSL_set1_host(ssl, name.c_str()) == 1 && SSL_set_tlsext_host_name(ssl, name.c_str()) == 1;
  }
  if (!named) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        absl::StrCat("TLS: \"", name.substr(0, 256),
                     "\" is no name that a certificate can have: no DNS name, IP address ", "or URI"));
  }
  parts.ticket_key = absl::StrCat(peer, "|", name);
  parts.name = std::move(name);
  return std::make_unique<Session>(std::move(parts));
}

void Context::KeepTicket(const std::string& key, uint64_t generation, Ticket ticket) {
  MutexLock lock(mutex_);
  if (generation != generation_) return;
  if (tickets_.size() >= kTicketPeersMax && tickets_.find(key) == tickets_.end())
    tickets_.erase(tickets_.begin());
  std::deque<Ticket>& tickets = tickets_[key];
  if (tickets.size() >= kTicketsPerPeerMax) tickets.pop_front();
  tickets.push_back(std::move(ticket));
}

Context::Ticket Context::TakeTicket(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(key);
  const absl::Time now = absl::Now();
  while (found != tickets_.end() && !found->second.empty()) {
    Ticket ticket = std::move(found->second.back());
    found->second.pop_back();
    if (ticket.valid_until > now) return ticket;
  }
  if (found != tickets_.end()) tickets_.erase(found);
  return {};
}

}  // namespace hawser::tls
