#include "hawser/observe/status_server.h"

#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/option_range.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/thread.h"
#include "hawser/base/unique_fd.h"
#include "hawser/observe/http_connections.h"
#include "hawser/observe/status_service.h"

namespace hawser::observe {
namespace {

struct HostAndPort {
  std::string host;
  std::string port;
};

absl::Status BadAddress(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is no address for the status page: HOST:PORT, or PORT for this machine only"));
}

absl::StatusOr<HostAndPort> ParseAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  HostAndPort parsed;
  parsed.port = std::string(colon == absl::string_view::npos ? text : text.substr(colon + 1));
  parsed.host = std::string(colon == absl::string_view::npos ? "" : text.substr(0, colon));
  if (parsed.host.size() > 2 && parsed.host.front() == '[' && parsed.host.back() == ']') {
    parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  } else if (parsed.host.find(':') != std::string::npos) {
    return BadAddress(text);  // An IPv6 address without brackets.
  }
  if (parsed.host.empty()) parsed.host = "127.0.0.1";
  int port;
  if (!absl::SimpleAtoi(parsed.port, &port) || port < 0 || port > 65535 ||
      !absl::ascii_isdigit(parsed.port[0])) {
    return BadAddress(text);
  }
  return parsed;
}

struct Listening {
  UniqueFd socket;
  SocketAddress address;
};

absl::Status ListenError(int error, absl::string_view text) {
  const std::string what = absl::StrCat("listen on ", text, " for the status page: ", DescribeErrno(error));
  if (error == EADDRINUSE)
    return absl::AlreadyExistsError(absl::StrCat(what, "; another program has this port"));
  if (error == EADDRNOTAVAIL)
    return absl::InvalidArgumentError(absl::StrCat(what, "; no interface of this machine has that address"));
  return absl::Status(absl::ErrnoToStatusCode(error), what);
}

absl::StatusOr<Listening> Listen(absl::string_view text) {
  absl::StatusOr<HostAndPort> parsed = ParseAddress(text);
  if (!parsed.ok()) return parsed.status();
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(parsed->host.c_str(), parsed->port.c_str(), &hints, &found); error != 0) {
    return absl::NotFoundError(
        absl::StrCat("listen on ", text, " for the status page: ", gai_strerror(error)));
  }
  const SocketAddress address(found->ai_addr, found->ai_addrlen);
  freeaddrinfo(found);
  Listening listening;
  listening.socket.Reset(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int one = 1;
  sockaddr_storage real = {};
  socklen_t real_bytes = sizeof(real);
  if (!listening.socket.is_open() ||
      setsockopt(listening.socket.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
      bind(listening.socket.get(), address.get(), address.length_bytes()) != 0 ||
      listen(listening.socket.get(), SOMAXCONN) != 0 ||
      getsockname(listening.socket.get(), reinterpret_cast<sockaddr*>(&real), &real_bytes) != 0) {
    return ListenError(errno, text);
  }
  listening.address = SocketAddress(reinterpret_cast<sockaddr*>(&real), real_bytes);
  return listening;
}

}  // namespace

// What runs on the thread of the status server.
class StatusServer::Loop final : kj::TaskSet::ErrorHandler {
 public:
  Loop(Listening listening, Source source, const Options& options)
      : options_(options),
        listening_(std::move(listening)),
        service_(std::move(source), {.loopback_only = listening_.address.is_loopback(),
                                     .snapshot_age = options.snapshot_age,
                                     .connection_time = options.connection_time,
                                     .idle_time = options.idle_time,
                                     .state = options.state,
                                     .metrics = options.metrics,
                                     .history_points = kHistoryPoints}) {}

  absl::Status Start() {
    absl::StatusOr<std::thread> thread = StartThread("hawser-status", [this] { Run(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    started_.WaitForNotification();
    return start_status_;
  }

  // On another thread, and not on its own one, which the source may hold.
  void StopListening() {
    stopped_listening_.store(true, std::memory_order_relaxed);
    // The socket is bound until it is closed, but one that does not listen is in the way of no other with
    // SO_REUSEADDR.
    shutdown(listening_.socket.get(), SHUT_RDWR);
  }

  ~Loop() {
    if (!thread_.joinable()) return;
    if (stop_.get() != nullptr) stop_->fulfill();
    thread_.join();
  }

 private:
  void Run() {
    try {
      Serve();
    } catch (const kj::Exception& exception) {
      // Before the server has started: the event loop needs file descriptors.
      start_status_ = absl::ResourceExhaustedError(
          absl::StrCat("start the status page: ", exception.getDescription().cStr(),
                       "; are there file descriptors left?"));
      stop_ = nullptr;
      if (!started_.HasBeenNotified()) started_.Notify();
    }
  }

  void Serve() {
    // Until here this thread has the priority of the one that started it.
    setpriority(PRIO_PROCESS, 0, std::max(options_.nice, getpriority(PRIO_PROCESS, 0)));
    kj::AsyncIoContext io = kj::setupAsyncIo();
    timer_ = &io.provider->getTimer();
    auto stop = kj::newPromiseAndCrossThreadFulfiller<void>();
    stop_ = kj::mv(stop.fulfiller);
    kj::HttpServer server(
        *timer_, service_.headers(),
        [this](kj::AsyncIoStream&) -> kj::Own<kj::HttpService> { return service_.OfConnection(*timer_); },
        service_.Settings());
    kj::Own<kj::ConnectionReceiver> receiver = io.lowLevelProvider->wrapListenSocketFd(
        listening_.socket.get(),
        kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC | kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK);
    HttpConnections connections(server, *timer_, options_.connections_max, Kj(options_.connection_time));
    kj::TaskSet tasks(*this);
    tasks.add(Accept(*receiver, connections));
    tasks.add(Sample());
    started_.Notify();
    stop.promise.wait(io.waitScope);
  }

  static kj::Duration Kj(absl::Duration duration) {
    return absl::ToInt64Microseconds(duration) * kj::MICROSECONDS;
  }

  // One that is lost already has none.
  static PeerHost HostOf(kj::AsyncIoStream& stream) {
    PeerHost host;
    KJ_IF_MAYBE (lost, kj::runCatchingExceptions([&] {
                   sockaddr_storage address = {};
                   kj::uint length_bytes = sizeof(address);
                   stream.getpeername(reinterpret_cast<sockaddr*>(&address), &length_bytes);
                   host = PeerHost(SocketAddress(reinterpret_cast<sockaddr*>(&address), length_bytes));
                 })) {
      (void)lost;
    }
    return host;
  }

  kj::Promise<void> Accept(kj::ConnectionReceiver& receiver, HttpConnections& connections) {
    // accept() itself throws if the system has no file descriptor for a peer that waits already.
    return kj::evalNow([&receiver] { return receiver.accept(); })
        .then(
            [&connections](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
              const PeerHost host = HostOf(*stream);
              connections.Add(kj::mv(stream), host);
              return kj::READY_NOW;
            },
            // No file descriptor is left, for instance. The peer waits in the kernel's queue.
            [this](kj::Exception&&) -> kj::Promise<void> {
              if (stopped_listening_.load(std::memory_order_relaxed)) return kj::NEVER_DONE;
              return timer_->afterDelay(100 * kj::MILLISECONDS);
            })
        .then([this, &receiver, &connections] {
          return kj::evalLater([this, &receiver, &connections] { return Accept(receiver, connections); });
        });
  }

  kj::Promise<void> Sample() {
    return timer_->afterDelay(Kj(options_.history_interval)).then([this] {
      service_.Sample();
      return Sample();
    });
  }

  // kj::TaskSet::ErrorHandler
  void taskFailed(kj::Exception&&) override {}

  const Options options_;
  const Listening listening_;
  absl::Notification started_;
  absl::Status start_status_;  // Valid once started.
  std::atomic<bool> stopped_listening_{false};
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> stop_;

  // Used by the thread.
  StatusService service_;
  kj::Timer* timer_ = nullptr;

  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(absl::string_view address, Source source,
                                                                  const Options& options) {
  constexpr absl::Duration kTimeMost = absl::Hours(24);
  absl::Status in_range = FirstError(
      CheckOption("StatusServer::Options::connections_max", uint64_t{options.connections_max}, uint64_t{1},
                  uint64_t{65536}),
      CheckOption("StatusServer::Options::connection_time", options.connection_time, absl::Milliseconds(1),
                  kTimeMost),
      CheckOption("StatusServer::Options::idle_time", options.idle_time, absl::Milliseconds(1), kTimeMost),
      CheckOption("StatusServer::Options::snapshot_age", options.snapshot_age, absl::ZeroDuration(),
                  kTimeMost),
      CheckOption("StatusServer::Options::history_interval", options.history_interval, absl::Milliseconds(1),
                  kTimeMost));
  if (!in_range.ok()) return in_range;
  absl::StatusOr<Listening> listening = Listen(address);
  if (!listening.ok()) return listening.status();
  std::string url = absl::StrCat("http://", listening->address.ToString());
  auto loop = std::make_unique<Loop>(*std::move(listening), std::move(source), options);
  if (absl::Status started = loop->Start(); !started.ok()) return started;
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(url), std::move(loop)));
}

StatusServer::StatusServer(std::string url, std::unique_ptr<Loop> loop)
    : url_(std::move(url)), loop_(std::move(loop)) {}

StatusServer::~StatusServer() = default;

void StatusServer::StopListening() { loop_->StopListening(); }

}  // namespace hawser::observe
