#include "hawser/rpc/server/server_core.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/rpc/server/check_server_options.h"
#include "hawser/rpc/server/service_manager.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/log/log.h"

namespace hawser::internal {
namespace {

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

ServerCore::ServerCore(ServerOptions options, const ServerExtensionList& built_in)
    : options_(std::move(options)),
      environment_(options_.runtime != nullptr ? options_.runtime->environment()
                                               : transport::Environment::Real()),
      serving_(MakeServing(options_)),
      snapshot_({.options = options_,
                 .methods = serving_->methods,
                 .listeners = listeners_,
                 .credentials = credentials_,
                 .clients = clients_,
                 .pollers = pollers_,
                 .environment = environment_}),
      extensions_(built_in, options_, environment_, *this),
      listeners_(*this),
      credentials_(options_),
      clients_(options_, environment_, serving_),
      pollers_(options_, serving_->methods, credentials_, clients_) {}

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
  extensions_.End();
  {
    absl::MutexLock lock(&mutex_);
    AwaitDown(absl::InfiniteFuture());  // Another thread may be shutting it down.
  }
  const bool ended = clients_.AwaitNoSessions(environment_.Now() + options_.handler_grace);
  const std::vector<ServingPoller*> pollers = pollers_.Serving();
  if (!ended) {
    clients_.LogUnfinishedCalls(pollers, "does not wait any more for calls that were deferred",
                                HandlerStage::kDeferred);
    clients_.LogUnfinishedCalls(pollers, "does not wait any more for calls that the executor has not run",
                                HandlerStage::kQueued);
  }
  serving_->handlers.Close();
  // Logs again after twice the time, and so on.
  absl::Duration patience = std::max(options_.handler_grace, absl::Milliseconds(1));
  absl::Time next = environment_.Now() + absl::Milliseconds(1);
  for (; !serving_->handlers.AwaitEmpty(environment_, next); patience *= 2) {
    clients_.LogUnfinishedCalls(pollers, "waits for handlers that have not returned", HandlerStage::kRunning);
    next = environment_.Now() + patience;
  }
  for (ServingPoller* const serving : pollers) serving->End();
  clients_.OnceEmpty([self = shared_from_this()]() mutable { DestroySoon(std::move(self)); });
}

void ServerCore::DestroySoon(std::shared_ptr<ServerCore> self) {
  // Not here: this is a poller's thread, and other pollers may still be ending their sessions.
  const absl::Status started = RunInBackground([self] {
    for (ServingPoller* const serving : self->pollers_.Serving()) RunAndWait(serving->poller(), [] {});
  });
  if (!started.ok()) new std::shared_ptr<ServerCore>(std::move(self));  // Leaked: there is no thread for it.
}

// ---- Listening

absl::Status ServerCore::AddService(Service* service) {
  if (service == nullptr) return absl::InvalidArgumentError("AddService() got no service, but null");
  MethodTable added;
  service->AddMethods(added);
  absl::MutexLock lock(&mutex_);
  if (has_extensions_) return absl::FailedPreconditionError("AddService() comes before the first Listen()");
  if (const Method* method = serving_->methods.AddAll(added); method != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("another service implements ", method->name, " already"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ServerCore::Listen(absl::string_view text) {
  if (pollers_.on_one()) {
    return MisplacedWait("Server::Listen()",
                         ", of that server: it may wait for them; let another thread call it");
  }
  absl::StatusOr<transport::Uri> uri = transport::ParseUri(text);
  if (!uri.ok()) return uri.status();
  if (absl::Status status = CheckServerOptions(options_); !status.ok()) return status;
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
    if (!std::exchange(has_extensions_, true)) {
      own_methods_ = serving_->methods;
      extensions_.AddTo(serving_->methods);
    }
  }
  if (absl::Status loaded = credentials_.Load(); !loaded.ok()) return loaded;
  if (absl::Status started = StartStatus(); !started.ok()) return started;
  absl::StatusOr<transport::Uri> real = listeners_.Listen(std::move(uri));
  if (!real.ok()) return real.status();
  {
    absl::MutexLock lock(&mutex_);
    listened_ = true;
  }
  WarnOfNoCredentials();
  std::string address = real->ToString();
  NotifyServingOnce(address);
  return address;
}

void ServerCore::NotifyServingOnce(absl::string_view address) {
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ != Phase::kServing || std::exchange(tells_serving_, true)) return;
  }
  NotifyServing(address);
  {
    absl::MutexLock lock(&mutex_);
    notified_serving_ = phase_ == Phase::kServing;
    if (notified_serving_) return;
  }
  NotifyStopping();  // A Shutdown() in between has not notified.
}

void ServerCore::BeginSetUp() {
  absl::MutexLock lock(&mutex_);
  ++set_ups_;
}

void ServerCore::EndSetUp() {
  std::vector<std::unique_ptr<PollerGroup>> unused;
  std::unique_ptr<observe::StatusServer> status;
  {
    absl::MutexLock lock(&mutex_);
    if (set_ups_ > 1 || phase_ != Phase::kServing) {
      HAWSER_SUBTRACT(set_ups_, 1);
      return;
    }
    unused = pollers_.TakeUnused(listeners_);
    if (!listened_) {
      status = std::move(status_);
      credentials_.Unload();
    }
  }
  ServerPollers::DestroyUnused(std::move(unused));
  status.reset();  // Without the lock, which its source takes. It reads the methods.
  absl::MutexLock lock(&mutex_);
  HAWSER_SUBTRACT(set_ups_, 1);
  if (set_ups_ > 0 || listened_ || !has_extensions_) return;
  // A client may have come to an address that was given up again. Its poller has counts for each method.
  if (pollers_.serves()) return;
  // Nothing listens, so no front desk gives a client to a poller meanwhile, which would count these methods.
  serving_->methods = std::move(own_methods_);
  own_methods_ = {};
  has_extensions_ = false;
}

absl::StatusOr<Listeners::Desk> ServerCore::DeskFor(const std::string& scheme, const SocketAddress& address) {
  absl::StatusOr<PollerGroup*> group = pollers_.At(scheme, address);
  if (!group.ok()) return group.status();
  Listeners::Desk desk{&(*group)->front_desk(), *group, credentials_.tls(), nullptr};
  if (desk.tls != nullptr && !(*group)->runtime()->carries_tls()) {
    desk.tls = nullptr;
    desk.proofs = credentials_.ProofsToListenWith();
  }
  return desk;
}

absl::StatusOr<Listeners::Desk> ServerCore::DeskForProofs() {
  absl::StatusOr<PollerGroup*> group = pollers_.ForProofs();
  if (!group.ok()) return group.status();
  return Listeners::Desk{&(*group)->front_desk(), &(*group)->proofs_only(), credentials_.tls(), nullptr};
}

absl::Status ServerCore::StartStatus() {
  if (options_.status_address.empty() || !status_url().empty()) return absl::OkStatus();
  observe::StatusServer::Options options;
  options.state = [this] { return WireState(); };
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

void ServerCore::WarnOfNoCredentials() {
  if (credentials_.given()) return;
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

absl::StatusOr<Buffer> ServerCore::AllocateBuffer(size_t size_bytes, absl::string_view uri) {
  if (uri.empty()) return pollers_.AllocateBuffer(size_bytes, uri);  // Makes no pollers.
  BeginSetUp();
  absl::StatusOr<Buffer> buffer = pollers_.AllocateBuffer(size_bytes, uri);
  EndSetUp();
  return buffer;
}

absl::StatusOr<SharedMemory> ServerCore::Share(size_t size_bytes) {
  if (size_bytes == 0) return absl::InvalidArgumentError("Server::Share(): there are no bytes to share");
  absl::StatusOr<std::shared_ptr<transport::LentMemory>> memory =
      transport::LentMemory::Map(clients_.regions().NewName(), size_bytes, environment_);
  if (!memory.ok()) return memory.status();
  return Registered(*std::move(memory));
}

absl::StatusOr<SharedMemory> ServerCore::Share(absl::Span<uint8_t> memory) {
  if (memory.empty()) return absl::InvalidArgumentError("Server::Share(): there are no bytes to share");
  if (memory.data() == nullptr) return absl::InvalidArgumentError("Server::Share(): the memory is null");
  return Registered(std::make_shared<transport::LentMemory>(clients_.regions().NewName(), memory.data(),
                                                            memory.size(), environment_));
}

absl::StatusOr<SharedMemory> ServerCore::Registered(std::shared_ptr<transport::LentMemory> memory) {
  for (const auto& [name, runtime] : pollers_.NamedRuntimes()) {
    if (absl::Status registered = memory->RegisterWith(runtime); !registered.ok()) return registered;
  }
  clients_.regions().Add(memory);
  memory->SetOnRevoked([regions = clients_.weak_regions(), region = memory->name().region] {
    if (const std::shared_ptr<SharedRegions> shared = regions.lock(); shared != nullptr)
      shared->OnRevoked(region);
  });
  return SharedMemory(std::move(memory));
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ServerCore::RuntimeOn(const std::string& scheme,
                                                                          const std::string& device) {
  if (!usable_in_this_process()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the server was");
  }
  return pollers_.RuntimeOn(scheme, device);
}

// ---- What it shows

std::vector<std::string> ServerCore::addresses() const {
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ != Phase::kServing) return {};
  }
  return listeners_.addresses();
}

std::string ServerCore::status_url() const {
  absl::MutexLock lock(&mutex_);
  return status_ != nullptr ? status_->url() : "";
}

observe::wire::Server::State ServerCore::WireState() const {
  absl::MutexLock lock(&mutex_);
  return phase_ == Phase::kServing    ? observe::wire::Server::State::SERVING
         : phase_ == Phase::kDraining ? observe::wire::Server::State::DRAINING
                                      : observe::wire::Server::State::DOWN;
}

void ServerCore::FillIn(observe::wire::Snapshot::Builder snapshot) {
  // Before what is counted: a server that is down has no calls.
  const observe::wire::Server::State state = WireState();
  snapshot_.FillIn(snapshot);
  snapshot.getServer().setState(state);
}

// ---- Shutdown

absl::Status ServerCore::Shutdown(absl::Time deadline) {
  // On an executor's thread it may wait until the deadline cancels its own call, but not without a deadline.
  if (deadline == absl::InfiniteFuture() ? in_a_handler() : pollers_.on_one()) {
    return MisplacedWait("Server::Shutdown()",
                         ", of that server: it would wait for itself; let another thread call it");
  }
  bool notified_serving = false;
  bool is_first = false;
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ == Phase::kServing) {
      is_first = true;
      phase_ = Phase::kDraining;
      pollers_.Close();
      clients_.Close();
      notified_serving = notified_serving_;
      if (status_ != nullptr) status_->StopListening();
    } else if (!AwaitDown(std::max(deadline, environment_.Now()))) {
      return absl::DeadlineExceededError("another Shutdown() of the server has not ended yet");
    }
  }
  if (!is_first) return AwaitHandlers(deadline);
  if (notified_serving) NotifyStopping();
  // While the connections are there still, and before clients look for another server.
  extensions_.Close(deadline);
  listeners_.Stop();
  pollers_.CloseProofs();  // What they prove cannot connect any more.
  if (deadline > environment_.Now()) {
    clients_.ForEach(pollers_.Serving(), [](Session& session) { session.Drain(); });
  }
  const absl::Status ended = AwaitHandlers(deadline);
  clients_.ForEach(pollers_.Serving(), [](Session& session) {
    session.Close(absl::UnavailableError("the server was shut down"));
  });
  clients_.AwaitNoConnections(absl::InfiniteFuture());
  absl::MutexLock lock(&mutex_);
  phase_ = Phase::kDown;
  down_.SignalAll();
  return ended;
}

absl::Status ServerCore::AwaitHandlers(absl::Time deadline) {
  if (clients_.AwaitNoSessions(std::max(deadline, environment_.Now()))) return absl::OkStatus();
  if (stats().calls_running == 0) return absl::OkStatus();
  return absl::DeadlineExceededError("handlers were still running, and their calls were cancelled");
}

bool ServerCore::AwaitDown(absl::Time deadline) {
  const auto is_down = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return phase_ == Phase::kDown; };
  return environment_.Await(mutex_, down_, is_down, deadline);
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
  AwaitDown(absl::InfiniteFuture());
  return absl::OkStatus();
}

}  // namespace hawser::internal
