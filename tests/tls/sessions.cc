#include "hawser/tests/tls/sessions.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::tls {
namespace {

// More rounds than any handshake or transfer of the tests has.
constexpr int kRoundsMax = 100'000;
// Rounds in which neither end did anything, after which both wait forever.
constexpr int kIdleRounds = 30;

// While there are any, SIGPIPE is ignored: OpenSSL's own writes raise it.
int raw_peers = 0;

}  // namespace

void Socket::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

size_t Socket::Send(absl::string_view bytes) {
  const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

std::string Socket::Receive(bool* is_closed) {
  std::string all;
  char buffer[65536];
  ssize_t n;
  while ((n = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT)) > 0)
    all.append(buffer, static_cast<size_t>(n));
  if (is_closed != nullptr) *is_closed = n == 0 || (errno != EAGAIN && errno != EINTR);
  return all;
}

SocketPair::SocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) abort();
  client = Socket(fds[0]);
  server = Socket(fds[1]);
}

SocketPair LoopbackTcp() {
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      listen(listener.fd(), 1) != 0 ||
      getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    abort();
  }
  SocketPair pair;
  pair.client = Socket(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(pair.client.fd(), reinterpret_cast<sockaddr*>(&address), length) != 0) abort();
  pair.server = Socket(accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  for (const int fd : {pair.client.fd(), pair.server.fd()}) {
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  return pair;
}

void SetSendBuffer(int fd, int bytes) { setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)); }

std::shared_ptr<Context> NewContext(const TlsCredentials& credentials, std::vector<absl::Status>* stale) {
  absl::StatusOr<std::shared_ptr<Context>> context =
      Context::Create(credentials, [stale](const absl::Status& why) {
        if (stale != nullptr) stale->push_back(why);
      });
  if (!context.ok()) {
    ADD_FAILURE() << context.status();
    abort();
  }
  return *std::move(context);
}

End::End(std::shared_ptr<Context> context, Side side, Socket socket, absl::string_view host,
         absl::string_view peer)
    : socket_(std::move(socket)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
  if (epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, socket_.fd(), &event) != 0) abort();
  absl::StatusOr<std::unique_ptr<Session>> session = context->NewSession(side, socket_.fd(), host, peer);
  if (!session.ok()) {
    ADD_FAILURE() << session.status();
    abort();
  }
  session_ = *std::move(session);
}

End::~End() { session_.reset(); }

void End::Close() {
  session_.reset();
  epoll_.Close();
  socket_.Close();
}

Session::Progress End::Step() {
  if (progress_ == Session::Progress::kDone || progress_ == Session::Progress::kFailed) return progress_;
  progress_ = session_->Handshake();
  if (progress_ == Session::Progress::kFailed) {
    EXPECT_THAT(session_->error(), ::testing::Not(IsOk()));
  }
  return progress_;
}

bool End::IsReadable() {
  epoll_event event;
  if (epoll_wait(epoll_.fd(), &event, 1, 0) == 1) {
    is_readable_ = true;
    // One event may report the peer's last bytes and its end, of which a read of the bytes learns nothing.
    if (event.events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) is_closing_ = true;
  }
  return is_readable_ || is_closing_;
}

std::string End::ReadInto(const std::vector<size_t>& sizes) {
  if (!IsReadable() || has_ended_ || has_failed_) return "";
  std::vector<std::string> buffers;
  std::vector<iovec> segments;
  for (const size_t size : sizes) buffers.emplace_back(size, '?');
  for (std::string& buffer : buffers) segments.push_back({buffer.data(), buffer.size()});
  const ssize_t n = session_->Read(segments.data(), segments.size());
  if (n < 0) {
    if (errno == EAGAIN) {
      is_readable_ = false;
    } else {
      has_failed_ = true;
    }
    return "";
  }
  if (n == 0) has_ended_ = true;
  if (session_->drained()) is_readable_ = false;
  std::string all;
  for (const std::string& buffer : buffers) all += buffer;
  EXPECT_LE(static_cast<size_t>(n), all.size());
  all.resize(static_cast<size_t>(n));
  return all;
}

std::string End::Read(size_t bytes_max) {
  std::string all;
  while (all.size() < bytes_max) {
    const std::string piece = ReadInto({bytes_max - all.size()});
    all += piece;
    if (piece.empty()) break;
  }
  return all;
}

size_t End::Write(absl::string_view bytes) {
  if (has_failed_) return 0;
  const iovec segment = {const_cast<char*>(bytes.data()), bytes.size()};
  const ssize_t n = session_->Write(&segment, 1);
  if (n < 0 && errno != EAGAIN) has_failed_ = true;
  EXPECT_NE(n, 0);
  return n < 0 ? 0 : static_cast<size_t>(n);
}

void End::Flush() {
  if (!has_failed_ && session_->has_unsent() && !session_->Flush() && errno != EAGAIN) has_failed_ = true;
}

Line::Line(std::shared_ptr<Context> client_context, std::shared_ptr<Context> server_context,
           SocketPair sockets, absl::string_view host, absl::string_view peer)
    : client(std::move(client_context), Side::kClient, std::move(sockets.client), host, peer),
      server(std::move(server_context), Side::kServer, std::move(sockets.server), "", "127.0.0.1:2") {}

Line::Line(std::shared_ptr<Context> client_context, std::shared_ptr<Context> server_context,
           absl::string_view host, absl::string_view peer)
    : Line(std::move(client_context), std::move(server_context), SocketPair(), host, peer) {}

Line::Line(const TlsCredentials& client_credentials, const TlsCredentials& server_credentials,
           absl::string_view host)
    : Line(NewContext(client_credentials), NewContext(server_credentials), host) {}

void Line::Handshake() { tls::Handshake(client, server); }

void Handshake(End& client, End& server) {
  const auto progress = [&] { return std::pair(client.progress(), server.progress()); };
  for (int round = 0, idle = 0; round < kRoundsMax && idle < kIdleRounds; ++round) {
    const auto before = progress();
    client.Step();
    server.Step();
    idle = before == progress() ? idle + 1 : 0;
  }
  for (End* end : {&client, &server}) {
    if (end->is_done()) end->Flush();
  }
  for (End* end : {&client, &server}) {
    const std::string read = end->is_done() ? end->Read() : "";
    EXPECT_EQ(read, "");
  }
}

std::string Transfer(End& from, End& to, absl::string_view bytes, size_t written_bytes, size_t read_bytes) {
  std::string arrived;
  size_t sent = 0;
  for (int round = 0, idle = 0; round < kRoundsMax && idle < kIdleRounds && arrived.size() < bytes.size();
       ++round) {
    bool moved = false;
    from.Flush();
    if (sent < bytes.size()) {
      const size_t taken = from.Write(bytes.substr(sent, written_bytes));
      sent += taken;
      moved |= taken > 0;
    }
    const std::string piece = to.Read(read_bytes);
    arrived += piece;
    moved |= !piece.empty();
    idle = moved ? 0 : idle + 1;
  }
  return arrived;
}

RawPeer::RawPeer(Side side, Socket socket, const RawOptions& options) : socket_(std::move(socket)) {
  if (raw_peers++ == 0) signal(SIGPIPE, SIG_IGN);
  context_ = SSL_CTX_new(side == Side::kClient ? TLS_client_method() : TLS_server_method());
  SSL_CTX_set_max_proto_version(context_, options.version_max);
  if (options.credentials != nullptr) {
    EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context_, options.credentials->certificate.c_str()), 1);
    EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context_, options.credentials->key.c_str(), SSL_FILETYPE_PEM), 1);
    if (side == Side::kServer) {
      SSL_CTX_load_verify_file(context_, options.credentials->authorities.c_str());
      SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
      SSL_CTX_set_session_id_context(context_, reinterpret_cast<const unsigned char*>("raw"), 3);
    }
  }
  if (!options.cipher.empty()) SSL_CTX_set_ciphersuites(context_, options.cipher.c_str());
  if (!options.groups.empty()) SSL_CTX_set1_groups_list(context_, options.groups.c_str());
  if (!options.alpn.empty()) {
    alpn_ = absl::StrCat(std::string(1, static_cast<char>(options.alpn.size())), options.alpn);
    SSL_CTX_set_alpn_protos(context_, reinterpret_cast<const unsigned char*>(alpn_.data()),
                            static_cast<unsigned>(alpn_.size()));
    SSL_CTX_set_alpn_select_cb(
        context_,
        [](SSL*, const unsigned char** out, unsigned char* length, const unsigned char*, unsigned,
           void* alpn) {
          const std::string& text = *static_cast<std::string*>(alpn);
          *out = reinterpret_cast<const unsigned char*>(text.data()) + 1;
          *length = static_cast<unsigned char>(text.size() - 1);
          return SSL_TLSEXT_ERR_OK;
        },
        &alpn_);
  }
  ssl_ = SSL_new(context_);
  SSL_set_fd(ssl_, socket_.fd());
  SSL_set_mode(ssl_, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (side == Side::kClient) {
    SSL_set_connect_state(ssl_);
  } else {
    SSL_set_accept_state(ssl_);
  }
}

RawPeer::~RawPeer() {
  SSL_free(ssl_);
  SSL_CTX_free(context_);
  if (--raw_peers == 0) signal(SIGPIPE, SIG_DFL);
}

int RawPeer::Result(int result) {
  if (result > 0) return 1;
  const int why = SSL_get_error(ssl_, result);
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return -1;
  has_failed_ = true;
  char text[256] = "the connection was closed";
  if (ERR_peek_error() != 0) ERR_error_string_n(ERR_get_error(), text, sizeof(text));
  ERR_clear_error();
  if (error_.empty()) error_ = text;
  return 0;
}

int RawPeer::Step() {
  if (has_failed_) return 0;
  ERR_clear_error();
  return Result(SSL_do_handshake(ssl_));
}

std::string RawPeer::Read() {
  std::string all;
  char buffer[16384];
  while (!has_failed_) {
    ERR_clear_error();
    const int n = SSL_read(ssl_, buffer, sizeof(buffer));
    if (Result(n) != 1) break;
    all.append(buffer, static_cast<size_t>(n));
  }
  return all;
}

bool Handshake(RawPeer& raw, End& end) {
  int raw_result = -1;
  for (int round = 0; round < 20; ++round) {
    raw_result = raw.Step();
    end.Step();
  }
  if (end.is_done()) end.Flush();
  const std::string read = raw_result == 1 ? raw.Read() : "";
  EXPECT_EQ(read, "");
  return raw_result == 1 && !raw.has_failed() && end.is_done();
}

void ExpectNoKeyIn(absl::string_view text, const TlsCredentials& credentials) {
  constexpr size_t kPartBytes = 12;
  for (const absl::string_view line : absl::StrSplit(ReadFile(credentials.key), '\n')) {
    if (line.substr(0, 5) == "-----") continue;
    for (size_t i = 0; i + kPartBytes <= line.size(); i += kPartBytes) {
      EXPECT_EQ(text.find(line.substr(i, kPartBytes)), absl::string_view::npos) << text;
    }
  }
}

}  // namespace hawser::tls
