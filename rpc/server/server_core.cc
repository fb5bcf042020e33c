#include "hawser/rpc/server/server_core.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "hawser/base/check.h"
#include "hawser/base/option_range.h"
#include "hawser/rpc/hawser/introspection.capnp.h"
#include "hawser/rpc/server/service_manager.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/rpc/wire/credentials.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/rpc/wire/read_limits.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/memory/size_class.h"
#include "hawser/transport/uri.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {
namespace {

// Small buffers are cut from slabs: one slab for receives, and one for messages.
constexpr uint64_t kPoolMin = 2 * transport::kSlabBytes;

// How many calls one line of the log names.
constexpr size_t kLoggedCallsMax = 10;

// A snapshot in an answer has this at most: more than that of a thousand methods and connections.
constexpr uint64_t kSnapshotBytesMax = 4 << 20;

std::shared_ptr<Serving> MakeServing(const ServerOptions& options) {
  auto serving = std::make_shared<Serving>();
  serving->read = options.read;
  serving->executor = options.executor;
  serving->interceptors = options.interceptors;
  serving->authorize = options.authorize;
  serving->plain = serving->interceptors.empty() && !serving->authorize;
  return serving;
}

}  // namespace

ServerCore::ServerCore(ServerOptions options)
    : options_(std::move(options)),
      environment_(options_.runtime != nullptr ? options_.runtime->environment()
                                               : transport::Environment::Real()),
      made_(environment_.Now()),
      serving_(MakeServing(options_)),
      reflection_(serving_->methods),
      health_(std::make_shared<HealthBoard>(environment_)),
      introspector_(options_.introspection,
                    std::min<uint64_t>(kSnapshotBytesMax, options_.connection.message_bytes_max / 2),
                    environment_, [this](observe::wire::Snapshot::Builder snapshot) { FillIn(snapshot); }),
      perf_(*this, environment_, options_),
      listeners_(*this),
      admission_(options_) {}

void ServerCore::End() {
  HAWSER_CHECK(!in_a_handler(),
               MisplacedWait("~Server()",
                             ", on a poller, or the executor, of that server: it would wait for itself; "
                             "let another thread destroy it")
                   .message());
  Shutdown(absl::InfinitePast()).IgnoreError();
  std::unique_ptr<observe::StatusServer> status;
  {
    absl::MutexLock lock(&mutex_);
    status = std::move(status_);
  }
  status.reset();  // Without the lock, which its source takes.
  introspector_.Close();
  bool ended;
  {
    absl::MutexLock lock(&mutex_);
    AwaitLocked(&ServerCore::Down);  // Another thread may be shutting it down.
    ended = AwaitLocked(&ServerCore::NoSessions, environment_.Now() + options_.handler_grace);
  }
  if (!ended) {
    LogUnfinishedCalls("does not wait any more for calls that were deferred", HandlerStage::kDeferred);
    LogUnfinishedCalls("does not wait any more for calls that the executor has not run",
                       HandlerStage::kQueued);
  }
  serving_->handlers.Close();
  // Logs again after twice the time, and so on.
  absl::Duration patience = std::max(options_.handler_grace, absl::Milliseconds(1));
  absl::Time next = environment_.Now() + absl::Milliseconds(1);
  for (; !serving_->handlers.AwaitEmpty(environment_, next); patience *= 2) {
    LogUnfinishedCalls("waits for handlers that have not returned", HandlerStage::kRunning);
    next = environment_.Now() + patience;
  }
  for (ServingPoller* serving : ServingPollers()) {
    // When the poller runs this, OnSessionEnded() of the last session has returned.
    RunAndWait(serving->poller, [serving] {
      serving->poller.timers().Cancel(serving->gather_timer);
      serving->poller.AddAsyncInterest(-1);
    });
  }
  absl::MutexLock lock(&mutex_);
  if (!sessions_.empty()) self_ = shared_from_this();
}

void ServerCore::LogUnfinishedCalls(absl::string_view what, HandlerStage stage) {
  absl::Mutex mutex;
  std::vector<std::string> calls;
  ForEachSession([&](Session& session) {
    std::vector<std::string> of_session = session.DescribeCalls(stage);
    absl::MutexLock lock(&mutex);
    for (std::string& call : of_session) calls.push_back(std::move(call));
  });
  if (calls.empty()) return;
  const size_t count = calls.size();
  calls.resize(std::min(count, kLoggedCallsMax));
  transport::Log(LogSeverity::kWarning,
                 absl::StrCat("the end of a Server ", what, " (", count, "): ", absl::StrJoin(calls, "; "),
                              count > calls.size() ? "; ..." : ""));
}

void ServerCore::DestroySoon(std::shared_ptr<ServerCore> self) {
  // Not here: this is a poller's thread, and other pollers may still be ending their sessions.
  const absl::Status started = RunInBackground([self] {
    for (transport::Poller* poller : self->AllPollers()) RunAndWait(*poller, [] {});
  });
  if (!started.ok()) new std::shared_ptr<ServerCore>(std::move(self));  // Leaked: there is no thread for it.
}

ServerCore::~ServerCore() {
  decltype(pollers_) pollers;
  {
    absl::MutexLock lock(&mutex_);
    pollers.swap(pollers_);
  }
  pollers.clear();
}

// ---- Listening

absl::Status ServerCore::AddService(Service* service) {
  if (service == nullptr) return absl::InvalidArgumentError("AddService() got no service, but null");
  MethodTable added;
  service->AddMethods(added);
  absl::MutexLock lock(&mutex_);
  if (has_built_ins_) return absl::FailedPreconditionError("AddService() comes before the first Listen()");
  if (const Method* method = serving_->methods.AddAll(added); method != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("another service implements ", method->name, " already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ServerCore::Listen(absl::string_view text) {
  absl::StatusOr<transport::Uri> uri = transport::ParseUri(text);
  if (!uri.ok()) return uri.status();
  if (absl::Status status = CheckOptions(); !status.ok()) return status;
  if (uri->scheme != transport::kAutoScheme) {
    if (absl::Status known = transport::CheckScheme(uri->scheme); !known.ok()) return known;
  }
  BeginSetUp();
  absl::StatusOr<std::string> address = ListenOn(*std::move(uri));
  EndSetUp();
  return address;
}

absl::StatusOr<std::string> ServerCore::ListenOn(transport::Uri uri) {
  {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(has_built_ins_, true)) {
      own_methods_ = serving_->methods;
      AddBuiltInServices();
    }
  }
  if (absl::Status loaded = Load(); !loaded.ok()) return loaded;
  if (absl::Status started = StartStatus(); !started.ok()) return started;
  absl::StatusOr<transport::Uri> real = listeners_.Listen(std::move(uri));
  if (!real.ok()) return real.status();
  {
    absl::MutexLock lock(&mutex_);
    listened_ = true;
  }
  WarnOfNoCredentials();
  std::string address = real->ToString();
  bool is_first;
  {
    absl::MutexLock lock(&mutex_);
    is_first = phase_ == Phase::kServing && !std::exchange(tells_serving_, true);
  }
  if (is_first) NotifyServing(address);
  bool stops_again = false;
  if (is_first) {
    absl::MutexLock lock(&mutex_);
    notified_serving_ = phase_ == Phase::kServing;
    stops_again = !notified_serving_;  // A Shutdown() in between has told nothing.
  }
  if (stops_again) NotifyStopping();
  return address;
}

void ServerCore::BeginSetUp() {
  absl::MutexLock lock(&mutex_);
  ++set_ups_;
}

void ServerCore::EndSetUp() {
  std::vector<std::unique_ptr<Pollers>> unused;
  std::unique_ptr<observe::StatusServer> status;
  {
    absl::MutexLock lock(&mutex_);
    if (set_ups_ > 1 || phase_ != Phase::kServing) {
      --set_ups_;
      return;
    }
    unused = TakeUnusedPollers();
    if (!listened_) {
      status = std::move(status_);
      tls_ = nullptr;
    }
  }
  End(std::move(unused));
  status.reset();  // Without the lock, which its source takes. It reads the methods.
  absl::MutexLock lock(&mutex_);
  if (--set_ups_ > 0 || listened_ || !has_built_ins_) return;
  // A client may have come to an address that was given up again. Its poller has counts for each method.
  for (const auto& [fabric, pollers] : pollers_) {
    if (!pollers->serving.empty()) return;
  }
  serving_->methods = std::move(own_methods_);
  own_methods_ = {};
  has_built_ins_ = false;
}

// A service of the application with one of these interfaces takes its place.
void ServerCore::AddBuiltInServices() {
  MethodTable& methods = serving_->methods;
  std::vector<std::string> services;
  for (const auto& [id, interface] : methods.interfaces()) services.emplace_back(interface.name);
  health_->Open(services);
  if (options_.health && methods.InterfaceName(capnp::typeId<health::Health>()).empty()) {
    health_->AddMethods(methods);
  }
  if (options_.reflection && methods.InterfaceName(capnp::typeId<reflection::Reflection>()).empty()) {
    reflection_.AddMethods(methods);
  }
  if (options_.introspection != Introspection::kNever &&
      methods.InterfaceName(capnp::typeId<introspection::Introspection>()).empty()) {
    introspector_.AddMethods(methods);
  }
  if (options_.perf && methods.InterfaceName(capnp::typeId<perf::Perf>()).empty()) perf_.AddMethods(methods);
}

absl::Status ServerCore::StartStatus() {
  if (options_.status_address.empty() || !status_url().empty()) return absl::OkStatus();
  observe::StatusServer::Options options;
  options.state = [this] {
    absl::MutexLock lock(&mutex_);
    return WireState();
  };
  options.metrics = options_.metrics;
  absl::StatusOr<std::unique_ptr<observe::StatusServer>> started = observe::StatusServer::Start(
      options_.status_address, [this](observe::wire::Snapshot::Builder snapshot) { FillIn(snapshot); },
      options);
  if (!started.ok()) return started.status();
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kServing) return absl::FailedPreconditionError("the server was shut down");
  if (status_ == nullptr)
    status_ = *std::move(started);  // Otherwise another thread was faster, and it ends here.
  return absl::OkStatus();
}

std::string ServerCore::status_url() const {
  absl::MutexLock lock(&mutex_);
  return status_ != nullptr ? status_->url() : "";
}

absl::Status ServerCore::Load() {
  if (!options_.credentials.has_value()) return absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    if (tls_ != nullptr) return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<tls::Context>> tls =
      LoadCredentials(*options_.credentials, "ServerOptions::credentials", tls::Side::kServer);
  if (!tls.ok()) return tls.status();
  absl::MutexLock lock(&mutex_);
  tls_ = *std::move(tls);
  return absl::OkStatus();
}

void ServerCore::WarnOfNoCredentials() {
  if (options_.credentials.has_value()) return;
  const std::optional<transport::Uri> uri = listeners_.FirstBeyondLoopback();
  if (!uri.has_value()) return;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(warned_of_no_credentials_, true)) return;
  }
  transport::Log(
      LogSeverity::kWarning,
      absl::StrCat("a server listens on ", uri->ToString(),
                   " without credentials: any program that reaches it may call it, and the network can "
                   "read and change what crosses; see ServerOptions::credentials"));
}

namespace {

absl::Status CheckProofPorts(const PortRange& ports) {
  if (ports.first == 0 && ports.last == 0) return absl::OkStatus();
  if (ports.first >= transport::kProofPortMin && ports.first <= ports.last) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "ServerOptions::proof_ports is ", ports.first, " to ", ports.last, ": `first` and `last` are from ",
      transport::kProofPortMin, " to 65535, `last` not below `first`; both 0 are any port"));
}

}  // namespace

absl::Status ServerCore::CheckOptions() const {
  absl::Status intercepts = CheckInterceptors(options_.interceptors, "ServerOptions::interceptors");
  if (!intercepts.ok()) return intercepts;
  absl::Status in_range = FirstError(
      transport::Connection::CheckOptions(options_.connection),
      CheckOption("ServerOptions::handler_grace", options_.handler_grace, absl::ZeroDuration(),
                  absl::InfiniteDuration()),
      CheckOption("ServerOptions::connections_max", uint64_t{options_.connections_max}, uint64_t{1},
                  uint64_t{std::numeric_limits<uint32_t>::max()}),
      CheckOption("ServerOptions::connections_per_host_max", uint64_t{options_.connections_per_host_max},
                  uint64_t{1}, uint64_t{std::numeric_limits<uint32_t>::max()}),
      CheckEnumOption("ServerOptions::introspection", options_.introspection, Introspection::kEveryone,
                      "kNever, kThisMachine, kEveryone"),
      CheckProofPorts(options_.proof_ports), CheckReadLimits(options_.read, "ServerOptions::read"));
  if (!in_range.ok()) return in_range;
  if (options_.runtime == nullptr) {
    absl::Status runtime =
        FirstError(CheckOption("ServerOptions::pollers", int64_t{options_.pollers}, int64_t{0},
                               int64_t{transport::kPollersMost}, "0: up to one for each core"),
                   transport::Runtime::CheckOptions({.poller = options_.poller, .pool = options_.pool}));
    if (!runtime.ok()) return runtime;
  }
  const uint64_t limit_bytes = options_.runtime != nullptr ? options_.runtime->buffers().stats().limit_bytes
                                                           : options_.pool.limit_bytes;
  if (limit_bytes >= kPoolMin) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ServerOptions: BufferPoolOptions::limit_bytes ",
                                                 limit_bytes, " is too little to serve a client: ", kPoolMin,
                                                 " at least"));
}

// ---- Shutdown

absl::Status ServerCore::Shutdown(absl::Time deadline) {
  // On an executor's thread it may wait until the deadline cancels its own call, but not without a deadline.
  if (deadline == absl::InfiniteFuture() ? in_a_handler() : on_a_poller()) {
    return MisplacedWait("Server::Shutdown()",
                         ", of that server: it would wait for itself; let another thread call it");
  }
  bool notified_serving;
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ != Phase::kServing) {  // Another thread is shutting it down.
      if (AwaitLocked(&ServerCore::Down, std::max(deadline, environment_.Now()))) return absl::OkStatus();
      return absl::DeadlineExceededError("another Shutdown() of the server has not ended yet");
    }
    phase_ = Phase::kDraining;
    notified_serving = notified_serving_;
    if (status_ != nullptr) status_->StopListening();
  }
  if (notified_serving) NotifyStopping();
  // While the connections are there still, and before clients look for another server.
  health_->Close(deadline);
  perf_.Close();
  listeners_.Stop();
  EndProofs();
  bool all_ended = false;
  if (deadline > environment_.Now()) {
    ForEachSession([](Session& session) { session.Drain(); });
    absl::MutexLock lock(&mutex_);
    all_ended = AwaitLocked(&ServerCore::NoConnections, deadline);
  }
  const bool cancels = !all_ended && stats().calls_running > 0;
  ForEachSession([](Session& session) { session.Close(absl::UnavailableError("the server was shut down")); });
  absl::MutexLock lock(&mutex_);
  AwaitLocked(&ServerCore::NoConnections);
  phase_ = Phase::kDown;
  ended_.SignalAll();
  if (cancels) return absl::DeadlineExceededError("calls that were still running were cancelled");
  return absl::OkStatus();
}

// What they prove cannot connect any more.
void ServerCore::EndProofs() {
  std::vector<transport::ProofDesk*> desks;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [fabric, pollers] : pollers_) {
      if (pollers->proof_desk != nullptr) desks.push_back(pollers->proof_desk.get());
    }
  }
  for (transport::ProofDesk* desk : desks) RunAndWait(desk->poller(), [desk] { desk->Close(); });
}

absl::Status ServerCore::Wait() {
  if (in_a_handler()) {
    return MisplacedWait("Server::Wait()",
                         ", of that server: it would wait for itself; let another thread call it");
  }
  const bool listens = !listeners_.empty();
  absl::MutexLock lock(&mutex_);
  if (phase_ == Phase::kServing && !listens) {
    return absl::FailedPreconditionError(
        "Server::Wait() would wait for ever: the server listens nowhere. Was Listen() called, and did it "
        "succeed?");
  }
  AwaitLocked(&ServerCore::Down);
  return absl::OkStatus();
}

bool ServerCore::AwaitLocked(bool (ServerCore::*condition)() const, absl::Time deadline) {
  return environment_.Await(
      mutex_, ended_, [&] { return (this->*condition)(); }, deadline);
}

void ServerCore::ForEachSession(absl::FunctionRef<void(Session&)> function) {
  const std::vector<transport::Poller*> all = AllPollers();
  const auto on = [&](transport::Poller* poller) {
    std::vector<transport::SessionToken> tokens;
    {
      absl::MutexLock lock(&mutex_);
      for (const auto& [token, session] : sessions_) {
        if (&session->poller() == poller) tokens.push_back(token);
      }
    }
    for (const transport::SessionToken& token : tokens) {
      Session* session;
      {
        absl::MutexLock lock(&mutex_);
        session = FindSession(token);  // The end of another session may have ended it.
      }
      if (session != nullptr) function(*session);
    }
  };
  // On all at once: a handler that holds one poller must not keep the others waiting.
  std::vector<std::shared_ptr<transport::WaitEvent>> done;
  for (transport::Poller* poller : all) {
    done.push_back(std::make_shared<transport::WaitEvent>());
    poller->Run([&on, poller, done = done.back()] {
      on(poller);
      done->Set();
    });
  }
  for (size_t i = 0; i < all.size(); ++i) all[i]->WaitFor(*done[i]);
}

}  // namespace hawser::internal
