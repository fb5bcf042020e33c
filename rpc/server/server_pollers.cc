// The pollers and the registered memory of a ServerCore: one runtime for each scheme and device.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/rpc/server/server_core.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/transport/fabrics.h"

namespace hawser::internal {
namespace {

// In the place of a device: the pollers of the runtime that only proves who connects.
constexpr char kForProofs[] = "proofs";

}  // namespace

absl::StatusOr<Listeners::Desk> ServerCore::DeskFor(const std::string& scheme, const SocketAddress& address) {
  absl::StatusOr<Pollers*> pollers = PollersOn(scheme, address);
  if (!pollers.ok()) return pollers.status();
  Pollers& of_scheme = **pollers;
  absl::MutexLock lock(&mutex_);
  Listeners::Desk desk{of_scheme.front_desk, &of_scheme, tls_, nullptr};
  if (tls_ != nullptr && !of_scheme.runtime->carries_tls()) {
    desk.tls = nullptr;
    desk.proofs = proofs_.lock();
    if (desk.proofs == nullptr) desk.proofs = transport::ProofTable::Create();
    proofs_ = desk.proofs;
  }
  return desk;
}

absl::StatusOr<Listeners::Desk> ServerCore::DeskForProofs() {
  absl::StatusOr<Pollers*> pollers = PollersForProofs();
  if (!pollers.ok()) return pollers.status();
  absl::MutexLock lock(&mutex_);
  return Listeners::Desk{(*pollers)->front_desk, &(*pollers)->proofs_only, tls_, nullptr};
}

absl::StatusOr<ServerCore::Pollers*> ServerCore::PollersOn(const std::string& scheme,
                                                           const SocketAddress& address) {
  if (options_.credentials.has_value()) {
    absl::Status secure = transport::CheckSchemeIsSecure(scheme, options_.credentials->require_encryption);
    if (!secure.ok()) return secure;
  }
  // A runtime that the application gives has its device already.
  return PollersFor(scheme, options_.runtime != nullptr ? "" : transport::DeviceFor(scheme, address, {}));
}

absl::StatusOr<ServerCore::Pollers*> ServerCore::PollersFor(const std::string& scheme,
                                                            const std::string& device) {
  return PollersFor({scheme, device}, [&] { return RuntimeFor(scheme, device); });
}

absl::StatusOr<ServerCore::Pollers*> ServerCore::PollersForProofs() {
  const std::string scheme(transport::kProvingScheme);
  {
    absl::MutexLock lock(&mutex_);
    const auto tcp = pollers_.find({scheme, ""});
    if (phase_ == Phase::kServing && tcp != pollers_.end()) return tcp->second.get();
  }
  // One poller, which sleeps: only the front desk has something to do, and the cores of ServerOptions::poller
  // are those of the pollers over RDMA.
  return PollersFor({scheme, kForProofs}, [&]() -> absl::StatusOr<std::shared_ptr<transport::Runtime>> {
    if (options_.runtime != nullptr && options_.runtime->prove_over() != nullptr) {
      return options_.runtime->prove_over();
    }
    return transport::Runtime::Create(scheme, {.pollers = 1, .poller = {.mode = PollingMode::kSleep}});
  });
}

absl::StatusOr<ServerCore::Pollers*> ServerCore::PollersFor(
    const std::pair<std::string, std::string>& key,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<transport::Runtime>>()> make_runtime, bool keeps) {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kServing) return absl::FailedPreconditionError("the server was shut down");
  std::unique_ptr<Pollers>& pollers = pollers_[key];
  if (pollers != nullptr) {
    pollers->is_kept |= keeps;
    return pollers.get();
  }
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = make_runtime();
  if (!runtime.ok()) {
    pollers_.erase(key);
    return runtime.status();
  }
  pollers = std::make_unique<Pollers>(*this);
  pollers->runtime = *std::move(runtime);
  absl::StatusOr<transport::Poller*> front_desk = pollers->runtime->FrontDesk();
  if (!front_desk.ok()) {
    pollers_.erase(key);
    return front_desk.status();
  }
  pollers->front_desk = *front_desk;
  pollers->is_kept = keeps;
  if (options_.credentials.has_value() && pollers->runtime->carries_tls()) {
    pollers->proof_desk = std::make_unique<transport::ProofDesk>(**front_desk);
  }
  return pollers.get();
}

std::vector<std::unique_ptr<ServerCore::Pollers>> ServerCore::TakeUnusedPollers() {
  std::vector<std::unique_ptr<Pollers>> unused;
  for (auto each = pollers_.begin(); each != pollers_.end();) {
    Pollers& pollers = *each->second;
    if (pollers.is_kept || !pollers.serving.empty() || listeners_.ListensOn(*pollers.front_desk)) {
      ++each;
    } else {
      unused.push_back(std::move(each->second));
      each = pollers_.erase(each);
    }
  }
  return unused;
}

void ServerCore::End(std::vector<std::unique_ptr<Pollers>> unused) {
  for (const std::unique_ptr<Pollers>& pollers : unused) {
    transport::ProofDesk* const desk = pollers->proof_desk.get();
    if (desk == nullptr) continue;
    RunAndWait(desk->poller(), [desk] { desk->Close(); });
    RunAndWait(desk->poller(), [] {});  // The turn of that has ended.
  }
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ServerCore::RuntimeFor(const std::string& scheme,
                                                                           const std::string& device) const {
  if (options_.runtime == nullptr) {
    return transport::Runtime::Create(scheme, {.pollers = options_.pollers,
                                               .poller = options_.poller,
                                               .pool = options_.pool,
                                               .rdma_device = device});
  }
  if (absl::Status status = options_.runtime->CheckServes(scheme); !status.ok()) return status;
  return options_.runtime;
}

std::vector<ServerCore::ServingPoller*> ServerCore::ServingPollers() const {
  std::vector<ServingPoller*> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& [fabric, pollers] : pollers_) {
    for (const auto& serving : pollers->serving) all.push_back(serving.get());
  }
  return all;
}

std::vector<transport::Poller*> ServerCore::AllPollers() const {
  std::vector<transport::Poller*> all;
  for (ServingPoller* serving : ServingPollers()) all.push_back(&serving->poller);
  return all;
}

bool ServerCore::on_a_poller() const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [fabric, pollers] : pollers_) {
    // All pollers of the runtime: channels may use those that do not serve.
    for (size_t i = 0; i < pollers->runtime->poller_count(); ++i) {
      if (pollers->runtime->poller(i).Held()) return true;
    }
  }
  return false;
}

absl::StatusOr<Buffer> ServerCore::AllocateBuffer(size_t size_bytes, absl::string_view uri) {
  if (uri.empty()) return AllocateBufferFor(size_bytes, uri);  // Makes no pollers.
  BeginSetUp();
  absl::StatusOr<Buffer> buffer = AllocateBufferFor(size_bytes, uri);
  EndSetUp();
  return buffer;
}

absl::StatusOr<Buffer> ServerCore::AllocateBufferFor(size_t size_bytes, absl::string_view uri) {
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = RuntimeForBuffers(uri);
  if (!runtime.ok()) return runtime.status();
  absl::StatusOr<Buffer> buffer = Buffer::Allocate((*runtime)->buffers(), size_bytes);
  if (buffer.ok() && !uri.empty()) {  // A service fills it before the server listens, which will be there.
    absl::MutexLock lock(&mutex_);
    for (const auto& [scheme_and_device, pollers] : pollers_)
      pollers->is_kept |= pollers->runtime == *runtime;
  }
  return buffer;
}

absl::StatusOr<Buffer> ServerCore::AllocateOn(absl::string_view scheme, size_t size_bytes) {
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = ServingRuntime(scheme, "");
  if (!runtime.ok()) return runtime.status();
  return Buffer::Allocate((*runtime)->buffers(), size_bytes);
}

uint64_t ServerCore::RefusalsOn(absl::string_view scheme) const {
  const absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime = ServingRuntime(scheme, "");
  return runtime.ok() ? (*runtime)->buffers().refusals() : 0;
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ServerCore::RuntimeAt(absl::string_view scheme,
                                                                          const SocketAddress& address) {
  return ServingRuntime(scheme, options_.runtime != nullptr ? "" : transport::DeviceFor(scheme, address, {}));
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ServerCore::ServingRuntime(
    absl::string_view scheme, const std::string& device) const {
  absl::MutexLock lock(&mutex_);
  auto found = pollers_.find({std::string(scheme), device});
  if (found == pollers_.end()) found = pollers_.lower_bound({std::string(scheme), ""});
  if (found == pollers_.end() || found->first.first != scheme) {
    return absl::UnavailableError("the server is shutting down");
  }
  return found->second->runtime;
}

// Creates the pollers that Listen() would create. Listen() then uses these.
absl::StatusOr<std::shared_ptr<transport::Runtime>> ServerCore::RuntimeForBuffers(absl::string_view text) {
  if (text.empty()) {
    absl::MutexLock lock(&mutex_);
    if (!pollers_.empty()) return pollers_.begin()->second->runtime;
    if (options_.runtime != nullptr) return options_.runtime;
    return absl::FailedPreconditionError(
        "before the first Listen() AllocateBuffer() wants the URI that the server will listen on, which says "
        "of what device");
  }
  absl::StatusOr<transport::Uri> uri = transport::ParseUri(text);
  if (!uri.ok()) return uri.status();
  const bool any = uri->scheme == transport::kAutoScheme;
  if (any) uri->scheme = std::string(transport::kPreferredScheme);
  if (absl::Status known = transport::CheckScheme(uri->scheme); !known.ok()) return known;
  absl::StatusOr<std::vector<SocketAddress>> addresses = transport::Resolve(*uri);
  if (!addresses.ok()) return addresses.status();
  absl::StatusOr<Pollers*> pollers = PollersOn(uri->scheme, addresses->front());
  if (any && !pollers.ok()) pollers = PollersOn(std::string(transport::kFallbackScheme), addresses->front());
  if (!pollers.ok()) return pollers.status();
  return (*pollers)->runtime;
}

absl::StatusOr<std::shared_ptr<transport::Runtime>> ServerCore::RuntimeOn(const std::string& scheme,
                                                                          const std::string& device) {
  if (!usable_in_this_process()) {
    return absl::FailedPreconditionError("this process is a child made by fork() after the server was");
  }
  absl::StatusOr<Pollers*> pollers = PollersFor(
      {scheme, options_.runtime != nullptr ? "" : device}, [&] { return RuntimeFor(scheme, device); },
      /*keeps=*/true);
  if (!pollers.ok()) return pollers.status();
  return (*pollers)->runtime;
}

}  // namespace hawser::internal
