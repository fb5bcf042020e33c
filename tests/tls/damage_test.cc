// Handshakes that are cut off or changed on their way, at every byte: both sides wait or end with an error.
#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gtest/gtest.h"
#include "hawser/base/violation.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tests/tls/sessions.h"

namespace hawser::tls {
namespace {

// Every byte takes some seconds. With a sanitizer, which is several times slower, every few.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStride = 7;
#elif defined(__has_feature)  // clang's way to say so.
constexpr size_t kStride = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ? 7 : 1;
#else
constexpr size_t kStride = 1;
#endif

// A client and a server, and all that passes between them in the hands of the test.
class Tapped {
 public:
  Tapped(const std::shared_ptr<Context>& client_context, const std::shared_ptr<Context>& server_context)
      : Tapped(client_context, server_context, SocketPair(), SocketPair()) {}

  // Until nothing moves. The bytes of each direction go through a function that returns what becomes of them.
  using Change = std::function<std::string(std::string bytes, size_t offset)>;
  void Run(const Change& from_client, const Change& from_server) {
    for (int idle = 0; idle < 3; ++idle) {
      client.Step();
      if (client.is_done()) client.Read();
      if (Pass(client_tap_, server_tap_, &client_bytes, from_client)) idle = 0;
      server.Step();
      if (server.is_done()) server.Read();
      if (Pass(server_tap_, client_tap_, &server_bytes, from_server)) idle = 0;
    }
  }
  // The line is cut: what was not delivered is lost.
  void Cut() {
    client_tap_.Close();
    server_tap_.Close();
    for (End* end : {&client, &server}) {
      end->Step();
      if (end->is_done()) end->Read();
    }
  }

  End client, server;
  size_t client_bytes = 0;  // That it has sent.
  size_t server_bytes = 0;

 private:
  Tapped(const std::shared_ptr<Context>& client_context, const std::shared_ptr<Context>& server_context,
         SocketPair client_side, SocketPair server_side)
      : client(client_context, Side::kClient, std::move(client_side.client)),
        server(server_context, Side::kServer, std::move(server_side.server)),
        client_tap_(std::move(client_side.server)),
        server_tap_(std::move(server_side.client)) {}

  static bool Pass(Socket& from, Socket& to, size_t* count, const Change& change) {
    const std::string bytes = from.Receive();
    if (bytes.empty()) return false;
    to.Send(change(bytes, *count));
    *count += bytes.size();
    return true;
  }

  Socket client_tap_, server_tap_;
};

std::string Same(std::string bytes, size_t) { return bytes; }
// Nothing passes from `end` on.
Tapped::Change CutAt(size_t end) {
  return [end](const std::string& bytes, size_t offset) {
    return offset >= end ? std::string() : bytes.substr(0, end - offset);
  };
}
Tapped::Change FlipAt(size_t position, int bit) {
  return [position, bit](std::string bytes, size_t offset) {
    if (position >= offset && position - offset < bytes.size()) {
      bytes[position - offset] = static_cast<char>(bytes[position - offset] ^ (1 << bit));
    }
    return bytes;
  };
}

void ExpectFitForALog(const absl::Status& status) {
  EXPECT_LE(status.message().size(), 1000u) << status;
  EXPECT_TRUE(std::all_of(status.message().begin(), status.message().end(), [](char c) {
    return c >= 0x20 && c < 0x7f;
  })) << status;
}

class DamageTest : public ::testing::Test {
 protected:
  // How many bytes each side sends in a handshake, tickets included.
  std::pair<size_t, size_t> Bytes() {
    Tapped whole(client_, server_);
    whole.Run(Same, Same);
    EXPECT_TRUE(whole.client.is_done() && whole.server.is_done());
    return {whole.client_bytes, whole.server_bytes};
  }
  // The other contexts: no tickets.
  void Forget() {
    client_.reset();
    client_ = NewContext(client_files_);
  }

  // Both ends have failed, or are done and know that the line is gone.
  static void ExpectBothEndAfterACut(Tapped& line) {
    line.Cut();
    for (End* end : {&line.client, &line.server}) {
      EXPECT_TRUE(end->is_failed() || end->has_ended());
      ExpectFitForALog(end->status());
    }
  }

  CertificateAuthority authority_;
  TlsCredentials client_files_ = authority_.Issue();
  TlsCredentials server_files_ = authority_.Issue();
  std::shared_ptr<Context> client_ = NewContext(client_files_);
  std::shared_ptr<Context> server_ = NewContext(server_files_);
};

TEST_F(DamageTest, ACutAtEveryByteIsWaitedForAndThenAnError) {
  const auto [client_bytes, server_bytes] = Bytes();
  ASSERT_GT(client_bytes, 500u);
  ASSERT_GT(server_bytes, 500u);
  for (const bool of_client : {true, false}) {
    for (size_t end = 0; end < (of_client ? client_bytes : server_bytes); end += kStride) {
      SCOPED_TRACE(testing::Message() << (of_client ? "client's byte " : "server's byte ") << end);
      Forget();
      Tapped line(client_, server_);
      line.Run(of_client ? CutAt(end) : Same, of_client ? Same : CutAt(end));
      // So far it could go on.
      EXPECT_FALSE(line.client.is_failed()) << line.client.status();
      EXPECT_FALSE(line.server.is_failed()) << line.server.status();
      if (of_client) {
        EXPECT_FALSE(line.server.is_done() && end + 100 < client_bytes);
      }
      ExpectBothEndAfterACut(line);
      for (End* each : {&line.client, &line.server}) {
        if (each->status().ok()) continue;
        EXPECT_THAT(each->status(), HasCode(absl::StatusCode::kUnavailable));
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_F(DamageTest, ACutOfAResumedHandshakeIsAnErrorToo) {
  const std::pair<size_t, size_t> whole = Bytes();
  const auto [client_bytes, server_bytes] = Bytes();
  ASSERT_LT(server_bytes, whole.second);
  for (const bool of_client : {true, false}) {
    for (size_t end = 0; end < (of_client ? client_bytes : server_bytes); end += 5 * kStride) {
      Bytes();  // New tickets.
      Tapped line(client_, server_);
      line.Run(of_client ? CutAt(end) : Same, of_client ? Same : CutAt(end));
      EXPECT_FALSE(line.client.is_failed()) << line.client.status();
      EXPECT_FALSE(line.server.is_failed()) << line.server.status();
      ExpectBothEndAfterACut(line);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_F(DamageTest, AHandshakeByteByByteSucceeds) {
  std::string to_server, to_client;
  const auto first = [](std::string& from) {
    std::string byte = from.substr(0, 1);
    from.erase(0, 1);
    return byte;
  };
  // Each round passes one byte each way.
  SocketPair client_side, server_side;
  End client(client_, Side::kClient, std::move(client_side.client));
  End server(server_, Side::kServer, std::move(server_side.server));
  for (int i = 0; i < 20'000 && !(client.is_done() && server.is_done()); ++i) {
    client.Step();
    server.Step();
    to_server += client_side.server.Receive();
    to_client += server_side.client.Receive();
    server_side.client.Send(first(to_server));
    client_side.server.Send(first(to_client));
  }
  EXPECT_TRUE(client.is_done()) << client.status();
  EXPECT_TRUE(server.is_done()) << server.status();
}

// Nothing of the handshake is left to chance, except what no signature covers: the version in the header of a
// record.
TEST_F(DamageTest, AChangedBitIsAnErrorOrChangesNothing) {
  const auto [client_bytes, server_bytes] = Bytes();
  size_t unharmed = 0;
  for (const bool of_client : {true, false}) {
    for (size_t i = 0; i < (of_client ? client_bytes : server_bytes); i += kStride) {
      SCOPED_TRACE(testing::Message() << (of_client ? "client's byte " : "server's byte ") << i);
      const int bit = static_cast<int>(i * 5 % 8);
      Forget();
      Tapped line(client_, server_);
      line.Run(of_client ? FlipAt(i, bit) : Same, of_client ? Same : FlipAt(i, bit));
      for (End* end : {&line.client, &line.server}) ExpectFitForALog(end->status());
      if (line.client.is_done() && line.server.is_done() && !line.client.is_failed() &&
          !line.server.is_failed()) {
        ++unharmed;
        EXPECT_TRUE(line.server.session().peer_identity()->HasDnsName("localhost"));
        EXPECT_TRUE(line.client.session().peer_identity()->HasDnsName("localhost"));
      }
      ExpectBothEndAfterACut(line);
      if (testing::Test::HasFailure()) return;
    }
  }
  // The headers of ten records, and tickets, which fail when they are read: after the handshake.
  EXPECT_LE(unharmed, 100u);
}

TEST_F(DamageTest, NoiseInsteadOfAHandshakeIsRefused) {
  unsigned seed = 1;
  for (int i = 0; i < 500; ++i) {
    std::string noise(1 + rand_r(&seed) % 2000, ' ');
    for (char& c : noise) c = static_cast<char>(rand_r(&seed));
    // The header of a record before it makes it go further.
    if (i % 2 == 1) noise = std::string("\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03", 11) + noise;
    for (const Side side : {Side::kClient, Side::kServer}) {
      SocketPair sockets;
      End end(side == Side::kClient ? client_ : server_, side, std::move(sockets.client));
      end.Step();
      sockets.server.Send(noise);
      end.Step();
      sockets.server.Close();
      end.Step();
      EXPECT_TRUE(end.is_failed());
      ExpectFitForALog(end.status());
    }
  }
}

}  // namespace
}  // namespace hawser::tls
