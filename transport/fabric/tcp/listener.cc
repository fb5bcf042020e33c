#include "hawser/transport/fabric/tcp/listener.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "hawser/base/violation.h"
#include "hawser/transport/fabric/tcp/connect_request.h"

namespace hawser::fabric {
namespace {

// The time until the next try after accept(2) has failed for lack of a resource. The peers wait in the
// backlog.
constexpr absl::Duration kAcceptBackoff = absl::Milliseconds(100);

// The limit of one Poll(), so that the connections get their turns.
constexpr int kAcceptsPerEvent = 64;

constexpr absl::string_view kHttpAnswer =
    "HTTP/1.1 400 Bad Request\r\n"
    "Content-Type: text/plain\r\n"
    "Content-Length: 73\r\n"
    "Connection: close\r\n"
    "\r\n"
    "This port speaks Hawser RPC, not HTTP: connect to it by a Hawser client.\n";

bool LooksLikeHttp(absl::string_view bytes) {
  for (absl::string_view method :
       {"GET ", "HEAD", "POST", "PUT ", "DELE", "OPTI", "CONN", "TRAC", "PATC", "PRI "}) {
    if (bytes.substr(0, method.size()) == method) return true;
  }
  return false;
}

// The key of an MPA request (RFC 5044, 7.1), by which iWARP begins over TCP. A client of auto:// tries RDMA
// first, so an honest one dials a port of TCP so.
bool LooksLikeMpa(absl::string_view bytes) {
  constexpr absl::string_view kKey = "MPA ID Req Frame";
  return !bytes.empty() && bytes == kKey.substr(0, bytes.size());
}

// A record of TLS's handshake (RFC 8446, 5.1).
bool LooksLikeTls(absl::string_view bytes) { return bytes.substr(0, 2) == "\x16\x03"; }

// Peers that have not sent a greeting may use a quarter of the files that the process may open.
size_t HalfOpenMax(const TcpFabricOptions& options) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY) return options.half_open_max;
  return std::min<size_t>(options.half_open_max, files.rlim_cur / 4);
}

// The limit for one host, reduced in the same proportion.
size_t HalfOpenPerHostMax(const TcpFabricOptions& options) {
  const size_t max = std::max(options.half_open_max, 1u);
  return HalfOpenMax(options) * std::min<size_t>(options.half_open_per_host_max, max) / max;
}

// What each of the two tables may have of `max`.
size_t Share(size_t max, const std::shared_ptr<tls::Context>& tls) { return tls == nullptr ? max : max / 2; }

SocketAddress AllOfIpv4(uint16_t port) {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  return SocketAddress(reinterpret_cast<const sockaddr*>(&v4), sizeof(v4));
}

absl::Status ListenError(const SocketAddress& address, const char* call, int error) {
  const std::string text =
      absl::StrCat("listen on ", address.ToString(), ": ", call, ": ", DescribeErrno(error));
  switch (error) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(absl::StrCat(text, ": another socket listens there"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat(text, ": ports below 1024 need CAP_NET_BIND_SERVICE; take a higher one"));
    case EADDRNOTAVAIL:
      return absl::InvalidArgumentError(
          absl::StrCat(text, ": no interface of this machine has that address"));
    default:
      return absl::InternalError(text);
  }
}

}  // namespace

TcpListener::TcpListener(TcpCompletionQueue& completion_queue, ListenHandler& handler,
                         const ListenOptions& options)
    : completion_queue_(completion_queue),
      handler_(handler),
      tls_(options.tls),
      fresh_(Share(HalfOpenMax(completion_queue.options()), tls_),
             Share(HalfOpenPerHostMax(completion_queue.options()), tls_)),
      begun_(Share(HalfOpenMax(completion_queue.options()), tls_),
             Share(HalfOpenPerHostMax(completion_queue.options()), tls_)) {
  completion_queue_.Register(*this);
}

TcpListener::~TcpListener() {
  half_open_.clear();
  if (socket_.is_open()) completion_queue_.UnwatchAndEnd(socket_);
  completion_queue_.Unregister(*this);
}

absl::StatusOr<std::unique_ptr<TcpListener>> TcpListener::Create(TcpCompletionQueue& completion_queue,
                                                                 const SocketAddress& address,
                                                                 ListenHandler& handler,
                                                                 const ListenOptions& options) {
  absl::StatusOr<UniqueFd> socket = OpenSocket(address.family(), completion_queue.options());
  if (!socket.ok()) {
    // On a machine without IPv6, [::] means all IPv4 addresses.
    const bool all = address.family() == AF_INET6 && address.is_unspecified();
    if (all && absl::IsInvalidArgument(socket.status())) {
      return Create(completion_queue, AllOfIpv4(address.port()), handler, options);
    }
    return absl::Status(socket.status().code(),
                        absl::StrCat("listen on ", address.ToString(), ": ", socket.status().message()));
  }
  const int fd = socket->get();
  const int on = 1;
  // Allows a port that connections of an earlier process, in TIME_WAIT, still use, but not one on which
  // another socket listens.
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // [::] accepts IPv4 peers, too. The system's default is a sysctl (net.ipv6.bindv6only).
  const int v6_only = address.is_unspecified() ? 0 : 1;
  if (address.family() == AF_INET6) {
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only));
  }
  if (bind(fd, address.get(), address.length_bytes()) != 0) return ListenError(address, "bind()", errno);
  if (listen(fd, completion_queue.options().listen_backlog) != 0)
    return ListenError(address, "listen()", errno);

  std::unique_ptr<TcpListener> listener(new TcpListener(completion_queue, handler, options));
  listener->socket_ = *std::move(socket);
  listener->address_ = LocalAddress(fd);
  completion_queue.Watch(*listener, fd, EPOLLIN);
  return listener;
}

void TcpListener::OnEvents(uint32_t) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    sockaddr_storage address = {};
    socklen_t length_bytes = sizeof(address);
    UniqueFd socket(accept4(socket_.get(), reinterpret_cast<sockaddr*>(&address), &length_bytes,
                            SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_open()) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (PeerWaits() && DropOne()) continue;
        // The backlog stays readable. If the listener still watched it, each Wait() would return at once.
        completion_queue_.ChangeWatch(*this, socket_.get(), 0);
        completion_queue_.SetTimer(*this, kAcceptBackoff);
        return;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      continue;  // This connection has already ended (ECONNABORTED, or an error of its own: accept(2)).
    }
    const SocketAddress peer_address(reinterpret_cast<sockaddr*>(&address), length_bytes);
    MakeRoom(fresh_, PeerHost(peer_address));
    half_open_.emplace_back(*this, std::move(socket), peer_address);
    half_open_.back().self = std::prev(half_open_.end());
  }
}

void TcpListener::Drop(PeerTable::Entry& half_open) {
  half_open_.erase(static_cast<HalfOpen&>(half_open).self);
}

void TcpListener::MakeRoom(const PeerTable& table, const PeerHost& host) {
  if (PeerTable::Entry* const excess = table.WhichMakesRoom(host); excess != nullptr) Drop(*excess);
}

// Needed because accept(2) fails for lack of a file even when no peer waits.
bool TcpListener::PeerWaits() const {
  pollfd waiting = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
  return poll(&waiting, 1, 0) == 1;
}

bool TcpListener::DropOne() {
  size_t count;
  PeerTable::Entry* oldest = fresh_.OldestOfTheMost(&count);
  if (oldest == nullptr) oldest = begun_.OldestOfTheMost(&count);
  if (oldest != nullptr) Drop(*oldest);
  return oldest != nullptr;
}

void TcpListener::OnTimer() { completion_queue_.ChangeWatch(*this, socket_.get(), EPOLLIN); }

TcpListener::HalfOpen::HalfOpen(TcpListener& listener, UniqueFd socket, const SocketAddress& peer_address)
    : listener_(listener), stream_(std::move(socket)), peer_address_(peer_address), host_(peer_address) {
  MoveTo(listener_.fresh_);
  listener_.completion_queue_.Register(*this);
  listener_.completion_queue_.Watch(*this, stream_.fd(), EPOLLIN);
  listener_.completion_queue_.SetTimer(*this, listener_.completion_queue_.options().half_open_timeout);
}

TcpListener::HalfOpen::~HalfOpen() {
  PeerTurns::Remove(*this);
  table_->Remove(*this);
  listener_.completion_queue_.SetTimer(*this, absl::InfiniteDuration());
  if (stream_.is_open()) listener_.completion_queue_.UnwatchAndEnd(stream_.EndTls());
  listener_.completion_queue_.Unregister(*this);
}

void TcpListener::HalfOpen::MoveTo(PeerTable& table) {
  if (table_ != nullptr) table_->Remove(*this);
  table_ = &table;
  table.Add(*this, host_);
}

void TcpListener::HalfOpen::OnTimer() { listener_.half_open_.erase(self); }

void TcpListener::HalfOpen::OnEvents(uint32_t events) {
  if (waits()) {
    // While it waits for its turn it is watched for nothing, so this is the end of the connection.
    if (events & (EPOLLERR | EPOLLHUP)) listener_.half_open_.erase(self);
    return;
  }
  if (listener_.tls_ == nullptr || lacks_tls_) return OnGreeting();
  if (!is_secure_) {
    if (turns_ == 0 && !BeginsTls()) return;
    if (listener_.turns_.MustWait(*this)) {
      listener_.completion_queue_.ChangeWatch(*this, stream_.fd(), 0);
      return listener_.turns_.Wait(*this);
    }
  }
  TakeTurn();
}

void TcpListener::HalfOpen::TakeTurn() {
  if (!is_secure_) {
    if (turns_++ == 0) {
      listener_.MakeRoom(listener_.begun_, host_);
      MoveTo(listener_.begun_);
      if (!Start()) return;
    }
    if (!Secure()) return;
  }
  OnGreeting();
}

void TcpListener::Turns::Wait(HalfOpen& half_open) {
  (half_open.is_in_front() ? begun_ : fresh_).Add(half_open, half_open.host());
  listener_.completion_queue_.SetTimer(*this, absl::ZeroDuration());
}

void TcpListener::Turns::OnTimer() {
  PeerTurns::Entry* next = begun_.TakeNext();
  if (next == nullptr) next = fresh_.TakeNext();
  if (next == nullptr) return;
  if (!begun_.empty() || !fresh_.empty()) {
    listener_.completion_queue_.SetTimer(*this, absl::ZeroDuration());
  }
  static_cast<HalfOpen*>(next)->TakeTurn();  // May destroy this.
}

bool TcpListener::HalfOpen::BeginsTls() {
  uint8_t first = 0;
  const ssize_t n = recv(stream_.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (n == 1) {
    constexpr uint8_t kTlsHandshake = 22;  // RFC 8446, 5.1
    lacks_tls_ = first != kTlsHandshake;
    if (!lacks_tls_) return true;
    OnGreeting();
    return false;
  }
  const bool waits = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  if (!waits) listener_.half_open_.erase(self);  // It has closed the connection.
  return false;
}

bool TcpListener::HalfOpen::Start() {
  absl::StatusOr<std::unique_ptr<tls::Session>> session =
      listener_.tls_->NewSession(tls::Side::kServer, stream_.fd(), {}, {});
  if (!session.ok()) {
    listener_.half_open_.erase(self);
    return false;
  }
  stream_.StartTls(*std::move(session), listener_.completion_queue_.options());
  return true;
}

bool TcpListener::HalfOpen::Secure() {
  TcpCompletionQueue& queue = listener_.completion_queue_;
  const int64_t start_ns = MonotonicNs();
  const tls::Session::Progress progress = stream_.tls()->Handshake();
  queue.CountHandshake(MonotonicNs() - start_ns);
  switch (progress) {
    case tls::Session::Progress::kDone:
      is_secure_ = true;
      queue.ChangeWatch(*this, stream_.fd(), EPOLLIN);
      return true;
    case tls::Session::Progress::kWantRead:
      queue.ChangeWatch(*this, stream_.fd(), EPOLLIN);
      return false;
    case tls::Session::Progress::kWantWrite:
      queue.ChangeWatch(*this, stream_.fd(), EPOLLOUT);
      return false;
    case tls::Session::Progress::kFailed:
      break;
  }
  HangUp();
  // A connection that just ended is no offence: so do those that only look whether the port is open.
  if (ViolationOf(stream_.tls()->error()).has_value()) ReportBadPeer(stream_.tls()->error());
  listener_.half_open_.erase(self);
  return false;
}

void TcpListener::HalfOpen::OnGreeting() {
  TcpListener& listener = listener_;
  switch (greeting_.Read(stream_)) {
    case GreetingReader::Result::kIncomplete:
      return;
    case GreetingReader::Result::kClosed:
      // A client finds out only after the server's handshake whether it accepts the server's certificate.
      if (stream_.tls() != nullptr && ViolationOf(stream_.tls()->error()).has_value()) {
        ReportBadPeer(stream_.tls()->error());
      }
      break;
    case GreetingReader::Result::kNotHawser:
      if (LooksLikeMpa(greeting_.bytes()) && stream_.tls() == nullptr) break;
      AnswerStranger();
      ReportBadGreeting(absl::StrCat(
          "sent \"", absl::CHexEscape(greeting_.bytes()), "\", which no Hawser client over TCP begins with",
          LooksLikeTls(greeting_.bytes()) && stream_.tls() == nullptr
              ? ": it is TLS, and this server has no credentials (ServerOptions::credentials)"
              : ""));
      break;
    case GreetingReader::Result::kMalformed:
      // The answer contains our version, so the peer can report the mismatch to its user.
      Reject();
      ReportBadGreeting(absl::StrCat("sent a greeting of version ", greeting_.greeting().version, ", kind ",
                                     static_cast<int>(greeting_.greeting().kind), ", with ",
                                     greeting_.greeting().private_data_bytes, " bytes of private data"));
      break;
    case GreetingReader::Result::kComplete:
      if (lacks_tls_) {
        Reject();
        absl::Status why = absl::UnauthenticatedError(
            "does not begin with TLS, which this server requires: it has no credentials "
            "(ChannelOptions::credentials)");
        SetViolation(why, Violation::kTls);
        ReportBadPeer(why);
        break;
      }
      if (greeting_.greeting().kind != GreetingKind::kConnect) {
        ReportBadGreeting("sent the greeting of a side that accepts");
        break;
      }
      listener.completion_queue_.Unwatch(stream_.fd());
      auto request = std::make_unique<TcpConnectRequest>(
          std::move(stream_), peer_address_, greeting_.greeting().read_depth, greeting_.greeting().flags,
          greeting_.private_data());
      ListenHandler& handler = listener.handler_;
      listener.half_open_.erase(self);
      handler.OnConnectRequest(std::move(request));  // May destroy the listener.
      return;
  }
  listener.half_open_.erase(self);
}

void TcpListener::HalfOpen::Reject() {
  listener_.completion_queue_.Unwatch(stream_.fd());
  TcpConnectRequest request(std::move(stream_), peer_address_, 0, 0, {});
  if (lacks_tls_) request.set_reject_flags(kNeedsTls);
  request.Reject({});
}

void TcpListener::HalfOpen::ReportBadGreeting(absl::string_view what) {
  ReportBadPeer(ViolationError(Violation::kGreeting, what));
}

void TcpListener::HalfOpen::ReportBadPeer(const absl::Status& what) {
  absl::string_view text = what.message();
  // TLS says "the peer" of the one that is named here.
  const char* const between = absl::ConsumePrefix(&text, "TLS: the peer ") ? ": TLS: it "
                              : absl::StartsWith(text, "TLS: ")            ? ": "
                                                                           : " ";
  absl::Status why(what.code(), absl::StrCat("peer tcp://", peer_address_.ToString(), between, text));
  CopyViolation(what, why);
  listener_.handler_.OnBadPeer(peer_address_, why);
}

// What is no Hawser client gets an answer that it understands, if there is one.
void TcpListener::HalfOpen::AnswerStranger() {
  if (stream_.tls() != nullptr) return;
  if (LooksLikeHttp(greeting_.bytes())) {
    stream_.SendAll(kHttpAnswer.data(), kHttpAnswer.size());
  } else if (LooksLikeTls(greeting_.bytes())) {
    // Not TLS: a Hawser client recognizes it, and says that this server has no credentials.
    const std::string answer = EncodeGreeting(GreetingKind::kReject, 0, {});
    stream_.SendAll(answer.data(), answer.size());
  } else {
    return;
  }
  HangUp();
}

// If the socket is closed with unread bytes, the kernel resets the connection, perhaps before the peer has
// read what was sent to it.
void TcpListener::HalfOpen::HangUp() {
  shutdown(stream_.fd(), SHUT_WR);
  std::array<char, 4096> rest;
  for (int i = 0; i < 16 && recv(stream_.fd(), rest.data(), rest.size(), MSG_DONTWAIT) > 0; ++i) {
  }
}

}  // namespace hawser::fabric
