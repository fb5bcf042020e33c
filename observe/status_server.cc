#include "hawser/observe/status_server.h"

#include <arpa/inet.h>
#include <capnp/compat/json.h>
#include <capnp/message.h>
#include <kj/async-io.h>
#include <kj/compat/http.h>
#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/notification.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/thread.h"
#include "hawser/base/unique_fd.h"
#include "hawser/observe/history.h"
#include "hawser/observe/page.h"
#include "hawser/observe/prometheus.h"

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
  return absl::ErrnoToStatus(error, what);
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

// Whether "localhost:9090", of a request that has come over loopback, is a name that this machine has for itself.
bool IsOwnName(absl::string_view host) {
  if (!host.empty() && host.front() == '[') {
    return host.substr(0, host.find(']') + 1) == "[::1]";
  }
  const std::string name(host.substr(0, host.find(':')));
  in_addr address;
  return absl::EqualsIgnoreCase(name, "localhost") ||
         (inet_pton(AF_INET, name.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
}

absl::string_view View(kj::StringPtr text) { return {text.cStr(), text.size()}; }

}  // namespace

// What runs on the thread of the status server.
class StatusServer::Loop final : kj::HttpService, kj::HttpServerErrorHandler, kj::TaskSet::ErrorHandler {
 public:
  Loop(Listening listening, Source source, const Options& options)
      : loopback_only_(listening.address.is_loopback()),
        source_(std::move(source)),
        options_(options),
        listening_(std::move(listening)),
        history_(kHistoryPoints) {}

  absl::Status Start() {
    absl::StatusOr<std::thread> thread = StartThread("hawser-status", [this] { Run(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
    started_.WaitForNotification();
    return start_status_;
  }

  ~Loop() {
    if (!thread_.joinable()) return;
    if (stop_.get() != nullptr) stop_->fulfill();
    thread_.join();
  }

 private:
  // One connection, the oldest first in connections_.
  struct Connection {
    kj::Own<kj::PromiseFulfiller<void>> end;
  };
  using Connections = std::list<Connection>;

  void Run() {
    try {
      Serve();
    } catch (const kj::Exception& exception) {
      // Before the server has started: the event loop needs file descriptors.
      start_status_ = absl::ResourceExhaustedError(absl::StrCat(
          "start the status page: ", View(exception.getDescription()), "; are there file descriptors left?"));
      stop_ = nullptr;
      if (!started_.HasBeenNotified()) started_.Notify();
    }
  }

  void Serve() {
    // Pages cost some milliseconds each, and anyone who reaches the port can ask for them: pollers go first.
    setpriority(PRIO_PROCESS, 0, kNice);
    kj::AsyncIoContext io = kj::setupAsyncIo();
    kj::HttpHeaderTable::Builder headers;
    policy_ = headers.add("Content-Security-Policy");
    no_sniff_ = headers.add("X-Content-Type-Options");
    cache_ = headers.add("Cache-Control");
    referrer_ = headers.add("Referrer-Policy");
    allow_ = headers.add("Allow");
    const kj::Own<kj::HttpHeaderTable> table = headers.build();
    table_ = table.get();
    timer_ = &io.provider->getTimer();
    auto stop = kj::newPromiseAndCrossThreadFulfiller<void>();
    stop_ = kj::mv(stop.fulfiller);
    {
      kj::HttpServerSettings settings;
      settings.headerTimeout = Kj(options_.connection_time);
      settings.pipelineTimeout = Kj(options_.idle_time);
      settings.canceledUploadGracePeriod = 0 * kj::SECONDS;
      settings.canceledUploadGraceBytes = 0;
      settings.errorHandler = *this;
      kj::HttpServer server(*timer_, *table, *this, settings);
      server_ = &server;
      kj::Own<kj::ConnectionReceiver> receiver = io.lowLevelProvider->wrapListenSocketFd(
          listening_.socket.get(),
          kj::LowLevelAsyncIoProvider::ALREADY_CLOEXEC | kj::LowLevelAsyncIoProvider::ALREADY_NONBLOCK);
      kj::TaskSet tasks(*this);
      tasks_ = &tasks;
      tasks.add(Accept(*receiver));
      tasks.add(Sample());
      started_.Notify();
      stop.promise.wait(io.waitScope);
    }
    tasks_ = nullptr;
  }

  static kj::Duration Kj(absl::Duration duration) {
    return absl::ToInt64Microseconds(duration) * kj::MICROSECONDS;
  }

  kj::Promise<void> Accept(kj::ConnectionReceiver& receiver) {
    // accept() itself throws if the system has no file descriptor for a peer that waits already.
    return kj::evalNow([&receiver] { return receiver.accept(); })
        .then(
            [this](kj::Own<kj::AsyncIoStream> stream) -> kj::Promise<void> {
              Add(kj::mv(stream));
              return kj::READY_NOW;
            },
            // No file descriptor is left, for instance. The peer waits in the kernel's queue.
            [this](kj::Exception&&) -> kj::Promise<void> {
              return timer_->afterDelay(100 * kj::MILLISECONDS);
            })
        .then([this, &receiver] { return kj::evalLater([this, &receiver] { return Accept(receiver); }); });
  }

  void Add(kj::Own<kj::AsyncIoStream> stream) {
    if (connections_.size() >= options_.connections_max) connections_.front().end->fulfill();
    auto ended = kj::newPromiseAndFulfiller<void>();
    const auto place = connections_.insert(connections_.end(), Connection{kj::mv(ended.fulfiller)});
    tasks_->add(server_->listenHttp(kj::mv(stream))
                    .exclusiveJoin(timer_->afterDelay(Kj(options_.connection_time)))
                    .exclusiveJoin(kj::mv(ended.promise))
                    .catch_([](kj::Exception&&) {})
                    .then([this, place] { connections_.erase(place); }));
  }

  kj::Promise<void> Sample() {
    return timer_->afterDelay(Kj(options_.history_interval)).then([this] {
      // A source that throws costs one point.
      KJ_IF_MAYBE (exception, kj::runCatchingExceptions([this] { history_.Add(Take()); })) {
        (void)exception;
      }
      return Sample();
    });
  }

  // The present snapshot, or one that is not older than Options::snapshot_age.
  wire::Snapshot::Reader Take() {
    const auto now = std::chrono::steady_clock::now();
    if (snapshot_ == nullptr || now - taken_ >= absl::ToChronoNanoseconds(options_.snapshot_age)) {
      auto snapshot = std::make_unique<capnp::MallocMessageBuilder>();
      source_(snapshot->initRoot<wire::Snapshot>());
      snapshot_ = std::move(snapshot);
      taken_ = std::chrono::steady_clock::now();
    }
    return snapshot_->getRoot<wire::Snapshot>().asReader();
  }

  // kj::HttpService
  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                            kj::AsyncInputStream& body, Response& response) override {
    if (method != kj::HttpMethod::GET && method != kj::HttpMethod::HEAD) {
      return Answer(response, 405, "Method Not Allowed", kText, "GET and HEAD only\n", /*allow=*/true);
    }
    KJ_IF_MAYBE (length, body.tryGetLength()) {
      if (*length != 0)
        return Answer(response, 413, "Payload Too Large", kText, "no request here has a body\n");
    } else {
      return Answer(response, 413, "Payload Too Large", kText, "no request here has a body\n");
    }
    if (loopback_only_) {
      const absl::string_view host = View(headers.get(kj::HttpHeaderId::HOST).orDefault(""));
      if (!IsOwnName(host)) {
        return Answer(response, 403, "Forbidden", kText,
                      "this page is for this machine: ask for it as localhost or 127.0.0.1\n");
      }
    }
    const absl::string_view path = View(url).substr(0, View(url).find('?'));
    if (path == "/")
      return Answer(response, 200, "OK", "text/html; charset=utf-8", StatusPage(Take(), history_));
    if (path == "/metrics")
      return Answer(response, 200, "OK", "text/plain; version=0.0.4", ToPrometheus(Take()));
    if (path == "/snapshot.json") return Answer(response, 200, "OK", "application/json", Json(Take()));
    if (path == "/healthz") {
      const wire::Server::State state = Take().getServer().getState();
      if (state == wire::Server::State::SERVING) return Answer(response, 200, "OK", kText, "serving\n");
      return Answer(response, 503, "Service Unavailable", kText,
                    state == wire::Server::State::DRAINING ? "draining\n" : "down\n");
    }
    return Answer(response, 404, "Not Found", kText, "there are /, /snapshot.json, /metrics and /healthz\n");
  }

  static std::string Json(wire::Snapshot::Reader snapshot) {
    capnp::JsonCodec codec;
    codec.setPrettyPrint(true);
    const kj::String json = codec.encode(snapshot);
    return absl::StrCat(View(json), "\n");
  }

  kj::Promise<void> Answer(Response& response, uint32_t code, kj::StringPtr name, kj::StringPtr type,
                           std::string body, bool allow = false) {
    kj::HttpHeaders headers(*table_);
    headers.set(kj::HttpHeaderId::CONTENT_TYPE, type);
    headers.set(policy_,
                "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
                "frame-ancestors 'none'");
    headers.set(no_sniff_, "nosniff");
    headers.set(cache_, "no-store");
    headers.set(referrer_, "no-referrer");
    if (allow) headers.set(allow_, "GET, HEAD");
    auto kept = kj::heap<std::string>(std::move(body));
    kj::Own<kj::AsyncOutputStream> out = response.send(code, name, headers, kept->size());
    auto written = out->write(kept->data(), kept->size());
    return written.attach(kj::mv(out), kj::mv(kept));
  }

  // kj::HttpServerErrorHandler
  kj::Promise<void> handleClientProtocolError(kj::HttpHeaders::ProtocolError error,
                                              Response& response) override {
    return Answer(response, error.statusCode, error.statusMessage, kText,
                  absl::StrCat(View(error.description), "\n"));
  }
  kj::Promise<void> handleApplicationError(kj::Exception, kj::Maybe<Response&> response) override {
    KJ_IF_MAYBE (open, response) {
      return Answer(*open, 500, "Internal Server Error", kText, "the snapshot could not be made\n");
    }
    return kj::READY_NOW;
  }

  // kj::TaskSet::ErrorHandler
  void taskFailed(kj::Exception&&) override {}

  static constexpr int kNice = 10;
  static constexpr char kText[] = "text/plain; charset=utf-8";

  const bool loopback_only_;
  const Source source_;
  const Options options_;
  const Listening listening_;
  absl::Notification started_;
  absl::Status start_status_;  // Valid once started.
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> stop_;

  // Used by the thread.
  History history_;
  std::unique_ptr<capnp::MallocMessageBuilder> snapshot_;
  std::chrono::steady_clock::time_point taken_;
  kj::HttpHeaderId policy_, no_sniff_, cache_, referrer_, allow_;
  const kj::HttpHeaderTable* table_ = nullptr;
  kj::Timer* timer_ = nullptr;
  kj::HttpServer* server_ = nullptr;
  Connections connections_;  // Outlives tasks_.
  kj::TaskSet* tasks_ = nullptr;

  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<StatusServer>> StatusServer::Start(absl::string_view address, Source source,
                                                                  const Options& options) {
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

}  // namespace hawser::observe
