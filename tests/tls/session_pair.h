#ifndef HAWSER_TESTS_TLS_SESSION_PAIR_H_
#define HAWSER_TESTS_TLS_SESSION_PAIR_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "hawser/base/check.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"
#include "hawser/tls/session.h"

// Two sessions, with a line between them that can change what passes.
namespace hawser::tls {

struct Sockets {
  UniqueFd near, far;
};

inline Sockets ConnectedTcp() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  HAWSER_CHECK(bind(listener.get(), generic, bytes) == 0 && listen(listener.get(), 1) == 0 &&
                   getsockname(listener.get(), generic, &bytes) == 0,
               errno);
  Sockets sockets;
  sockets.near = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  HAWSER_CHECK(connect(sockets.near.get(), generic, bytes) == 0, errno);
  sockets.far = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  for (const UniqueFd* each : {&sockets.near, &sockets.far}) {
    const int on = 1;
    setsockopt(each->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    fcntl(each->get(), F_SETFL, O_NONBLOCK);
  }
  return sockets;
}

inline Sockets ConnectedUnix() {
  int fds[2];
  HAWSER_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0, errno);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

// A session, its socket, and what it has read.
struct Party {
  UniqueFd socket;
  std::unique_ptr<Session> session;
  std::string heard;
  bool ended = false;  // Read() returned 0.

  ssize_t Say(absl::string_view bytes) {
    const iovec segment = {const_cast<char*>(bytes.data()), bytes.size()};
    return session->Write(&segment, 1);
  }
};

class SessionPair {
 public:
  explicit SessionPair(KernelUse client_use, KernelUse server_use, const std::string& cipher = "",
                       const std::function<Sockets()>& connect = ConnectedTcp, bool greets = true) {
    static const CertificateAuthority& authority = *new CertificateAuthority;
    static const TlsCredentials& credentials = *new TlsCredentials(authority.Issue());
    context_ = Context::Create(credentials, nullptr).value();
    Sockets of_client = connect(), of_server = connect();
    client.socket = std::move(of_client.near);
    client_end_.fd = std::move(of_client.far);
    server.socket = std::move(of_server.near);
    server_end_.fd = std::move(of_server.far);
    // A peer of its own, so that no session is resumed.
    static int peers = 0;
    client.session =
        context_
            ->NewSession(Side::kClient, client.socket.get(), "localhost", "peer" + std::to_string(++peers))
            .value();
    server.session = context_->NewSession(Side::kServer, server.socket.get(), "", "").value();
    if (!cipher.empty()) SSL_set_ciphersuites(client.session->ssl(), cipher.c_str());
    client.session->AllowKernel(client_use);
    server.session->AllowKernel(server_use);
    Until([&] {
      const Session::Progress of_client_now = client.session->Handshake();
      return client.session->error().ok() && server.session->error().ok() &&
             of_client_now == Session::Progress::kDone &&
             server.session->Handshake() == Session::Progress::kDone;
    });
    // As the fabric greets. The client takes the server's tickets on the way.
    if (!greets) return;
    Send(client, server, "greeting");
    Send(server, client, "answer");
  }

  void MoveBoth() {
    client.session->MoveToKernel();
    server.session->MoveToKernel();
  }

  // Passes on what has come, and reads.
  void Step() {
    PassOn(client_end_, server_end_);
    PassOn(server_end_, client_end_);
    for (Party* party : {&client, &server}) {
      if (holds_back_ == party) continue;
      Listen(*party);
    }
  }
  bool Until(const std::function<bool()>& condition) {
    const absl::Time give_up = absl::Now() + absl::Seconds(20);
    while (!condition()) {
      if (absl::Now() > give_up) {
        ADD_FAILURE() << "in vain; client: " << client.session->error()
                      << ", server: " << server.session->error();
        return false;
      }
      if (client.session->peer_identity() != nullptr && server.session->peer_identity() != nullptr) {
        Step();
      } else {
        PassOn(client_end_, server_end_);
        PassOn(server_end_, client_end_);
        if (server.session->error().ok()) server.session->Handshake();
      }
    }
    return true;
  }

  // All of `bytes` arrive.
  void Send(Party& from, Party& to, absl::string_view bytes) {
    to.heard.clear();
    size_t sent = 0;
    const bool came = Until([&] {
      if (sent < bytes.size()) {
        const ssize_t n = from.Say(bytes.substr(sent));
        if (n > 0) sent += static_cast<size_t>(n);
      } else if (from.session->has_unsent()) {
        from.session->Flush();
      }
      return to.heard.size() >= bytes.size();
    });
    if (came) {
      EXPECT_TRUE(to.heard == bytes) << "of " << bytes.size() << " bytes some are wrong";
    }
    to.heard.clear();
  }

  // One of the next bytes to it is changed on its way; counted from the end if `at` is negative.
  void Spoil(Party& to, int at = -1) { (&to == &client ? client_end_ : server_end_).spoils = at; }
  // Does not read for it.
  void HoldBack(Party* party) { holds_back_ = party; }

  Party client, server;

 private:
  struct End {
    UniqueFd fd;
    std::optional<int> spoils;
    bool closed = false;
    std::string waiting;  // For its party.
  };

  void PassOn(End& from, End& to) {
    char buffer[65536];
    if (to.waiting.empty()) {
      const ssize_t n = recv(from.fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
      if (n > 0) {
        to.waiting.assign(buffer, static_cast<size_t>(n));
        if (const std::optional<int> at = std::exchange(to.spoils, std::nullopt))
          to.waiting.at(*at < 0 ? to.waiting.size() + *at : *at) ^= 0x80;
      }
      if (n == 0 && !std::exchange(to.closed, true)) shutdown(to.fd.get(), SHUT_WR);
    }
    if (to.waiting.empty()) return;
    const ssize_t n = send(to.fd.get(), to.waiting.data(), to.waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) to.waiting.erase(0, static_cast<size_t>(n));
  }

  // Into three segments, so that records cross their borders.
  void Listen(Party& party) {
    if (party.ended || !party.session->error().ok()) return;
    std::vector<char> bytes(40000);
    const iovec segments[] = {
        {bytes.data(), 1}, {bytes.data() + 1, 5000}, {bytes.data() + 5001, bytes.size() - 5001}};
    const ssize_t n = party.session->Read(segments, 3);
    if (n > 0) party.heard.append(bytes.data(), static_cast<size_t>(n));
    if (n == 0) party.ended = true;
  }

  std::shared_ptr<Context> context_;
  End client_end_, server_end_;
  const Party* holds_back_ = nullptr;
};

// Bytes of which no two stretches are alike.
inline std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = 1;
  for (char& each : text) each = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

}  // namespace hawser::tls

#endif  // HAWSER_TESTS_TLS_SESSION_PAIR_H_
