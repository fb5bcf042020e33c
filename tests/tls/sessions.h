#ifndef HAWSER_TESTS_TLS_SESSIONS_H_
#define HAWSER_TESTS_TLS_SESSIONS_H_

#include <openssl/ssl.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"
#include "hawser/tls/credentials.h"
#include "hawser/tls/session.h"

// What the tests of sessions have in common: both ends of a line in one thread, without a wait. A line is a
// pair of local sockets, which deliver what is sent within the call that sends it.
namespace hawser::tls {

// A file descriptor that is closed when its owner is destroyed.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { Close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  void Close();
  // What is sent that does not fit is refused. Returns how many bytes were sent.
  size_t Send(absl::string_view bytes);
  // What has arrived. `is_closed`, if given, is set at the end of the stream.
  std::string Receive(bool* is_closed = nullptr);

 private:
  int fd_ = -1;
};

// Two connected, non-blocking sockets.
struct SocketPair {
  SocketPair();
  Socket client, server;
};
// The same by TCP over the loopback interface: bytes may take a moment.
SocketPair LoopbackTcp();
void SetSendBuffer(int fd, int bytes);

// A context whose files can be used. Why changed files could not be used goes to `stale`, if given.
std::shared_ptr<Context> NewContext(const TlsCredentials& credentials,
                                    std::vector<absl::Status>* stale = nullptr);

// One end of a line, which learns of what arrives as from an epoll instance whose events are edges: it reads
// until the session says that nothing is left, and then only after an event.
class End {
 public:
  End(std::shared_ptr<Context> context, Side side, Socket socket, absl::string_view host = "localhost",
      absl::string_view peer = "127.0.0.1:1");
  ~End();

  Session& session() { return *session_; }
  int fd() const { return socket_.fd(); }
  // The session ends first.
  void Close();

  // One step of the handshake.
  Session::Progress Step();
  Session::Progress progress() const { return progress_; }
  bool is_done() const { return progress_ == Session::Progress::kDone; }
  bool is_failed() const { return progress_ == Session::Progress::kFailed || has_failed_; }

  // After the handshake. What can be read now. The end of the stream and errors are kept.
  std::string Read(size_t bytes_max = 1 << 20);
  // Reads into segments of these sizes.
  std::string ReadInto(const std::vector<size_t>& sizes);
  bool has_ended() const { return has_ended_; }
  // As much as fits. Returns how many bytes.
  size_t Write(absl::string_view bytes);
  // Sends what the session keeps, too.
  void Flush();

  // OK, or why the handshake, a read or a write failed.
  const absl::Status& status() { return session_->error(); }

 private:
  bool IsReadable();

  Socket socket_;
  Socket epoll_;
  bool is_readable_ = true;
  bool is_closing_ = false;
  bool has_ended_ = false;
  bool has_failed_ = false;
  std::unique_ptr<Session> session_;
  Session::Progress progress_ = Session::Progress::kWantRead;
};

// Both ends.
struct Line {
  Line(std::shared_ptr<Context> client_context, std::shared_ptr<Context> server_context,
       absl::string_view host = "localhost", absl::string_view peer = "127.0.0.1:1");
  Line(const TlsCredentials& client_credentials, const TlsCredentials& server_credentials,
       absl::string_view host = "localhost");
  Line(std::shared_ptr<Context> client_context, std::shared_ptr<Context> server_context, SocketPair sockets,
       absl::string_view host = "localhost", absl::string_view peer = "127.0.0.1:1");

  // Until both sides are done or failed, or wait for each other forever. A client whose side is done reads,
  // since it hears only after that whether the server believes it (RFC 8446, E.1).
  void Handshake();
  bool is_up() const {
    return client.is_done() && server.is_done() && !client.is_failed() && !server.is_failed();
  }

  End client, server;
};

// Handshakes until both are done or have failed, or neither has anything to do.
void Handshake(End& client, End& server);

// Passes `bytes` from one end to the other, `written_bytes` at a time, and returns what arrived: less than
// `bytes` if the two ends wait for each other forever.
std::string Transfer(End& from, End& to, absl::string_view bytes, size_t written_bytes = 1 << 20,
                     size_t read_bytes = 1 << 20);

// A peer that is OpenSSL alone, to do what no session does.
struct RawOptions {
  const TlsCredentials* credentials = nullptr;  // Null: it has no certificate, and accepts any.
  int version_max = TLS1_3_VERSION;
  std::string alpn = "hawser/1";  // Empty: none.
  std::string cipher = "";        // Empty: as OpenSSL likes.
  std::string groups = "";        // Likewise.
};
class RawPeer {
 public:
  RawPeer(Side side, Socket socket, const RawOptions& options = {});
  ~RawPeer();

  SSL* ssl() { return ssl_; }
  int fd() const { return socket_.fd(); }
  Socket& socket() { return socket_; }
  // 1: the handshake is done. -1: it goes on. 0: it failed; see error().
  int Step();
  // What has been decrypted, after the handshake.
  std::string Read();
  bool has_failed() const { return has_failed_; }
  const std::string& error() const { return error_; }

 private:
  int Result(int result);

  Socket socket_;
  SSL_CTX* context_;
  SSL* ssl_;
  std::string alpn_;  // As it is in the protocol.
  bool has_failed_ = false;
  std::string error_;
};

// The same as above. True: both are done.
bool Handshake(RawPeer& raw, End& end);

// No part of a private key is in the text.
void ExpectNoKeyIn(absl::string_view text, const TlsCredentials& credentials);

}  // namespace hawser::tls

#endif  // HAWSER_TESTS_TLS_SESSIONS_H_
