#include "hawser/rpc/server/server_pollers.h"

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

// In the place of a device: the pollers of the runtime that only proves who connects.
constexpr char kForProofs[] = "proofs";

}  // namespace

ServerPollers::~ServerPollers() {
  decltype(groups_) groups;  // Destroyed without the lock.
  absl::MutexLock lock(&mutex_);
  groups.swap(groups_);
}

void ServerPollers::Close() {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
}

// ---- Making them

absl::StatusOr<PollerGroup*> ServerPollers::At(const std::string& scheme, const SocketAddress& address) {
  if (options_.credentials.has_value()) {
    absl::Status secure = transport::CheckSchemeIsSecure(scheme, options_.credentials->require_encryption);
    if (!secure.ok()) return secure;
  }
  return On(scheme, DeviceFor(scheme, address), /*keeps=*/false);
}

std::string ServerPollers::DeviceFor(absl::string_view scheme, const SocketAddress& address) const {
  return options_.runtime != nullptr ? "" : transport::DeviceFor(scheme, address, {});
}

absl::StatusOr<PollerGroup*> ServerPollers::On(const std::string& scheme, const std::string& device,
                                               bool keeps) {
  return MakeOnce(
      {scheme, options_.runtime != nullptr ? "" : device}, [&] { return MakeRuntime(scheme, device); },
      keeps);
}

absl::StatusOr<PollerGroup*> ServerPollers::ForProofs() {
  const std::string scheme(transport::kProvingScheme);
  {
    absl::MutexLock lock(&mutex_);
    const auto tcp = groups_.find({scheme, ""});
    if (!closed_ && tcp != groups_.end()) return tcp->second.group.get();
  }
  // One poller, which sleeps: only the front desk has something to do, and the cores of ServerOptions::poller
  // are those of the pollers over RDMA.
  const auto make_runtime = [&]() -> RuntimeOr {
    if (options_.runtime != nullptr && options_.runtime->prove_over() != nullptr) {
      return options_.runtime->prove_over();
    }
    return transport::Runtime::Create(scheme, {.pollers = 1, .poller = {.mode = PollingMode::kSleep}});
  };
  return MakeOnce({scheme, kForProofs}, make_runtime, /*keeps=*/false);
}

absl::StatusOr<PollerGroup*> ServerPollers::MakeOnce(const Key& key,
                                                     absl::FunctionRef<RuntimeOr()> make_runtime,
                                                     bool keeps) {
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::FailedPreconditionError("the server was shut down");
  if (const auto found = groups_.find(key); found != groups_.end()) {
    found->second.is_kept |= keeps;
    return found->second.group.get();
  }
  RuntimeOr runtime = make_runtime();
  if (!runtime.ok()) return runtime.status();
  absl::StatusOr<std::unique_ptr<PollerGroup>> made =
      PollerGroup::Create(*std::move(runtime), methods_, credentials_, clients_);
  if (!made.ok()) return made.status();
  Entry& entry = groups_[key];
  entry = {*std::move(made), keeps};
  return entry.group.get();
}

ServerPollers::RuntimeOr ServerPollers::MakeRuntime(const std::string& scheme,
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

ServerPollers::RuntimeOr ServerPollers::RuntimeOn(const std::string& scheme, const std::string& device) {
  absl::StatusOr<PollerGroup*> group = On(scheme, device, /*keeps=*/true);
  if (!group.ok()) return group.status();
  return (*group)->runtime();
}

// ---- Ending them

std::vector<std::unique_ptr<PollerGroup>> ServerPollers::TakeUnused(const Listeners& listeners) {
  std::vector<std::unique_ptr<PollerGroup>> unused;
  absl::MutexLock lock(&mutex_);
  for (auto each = groups_.begin(); each != groups_.end();) {
    Entry& entry = each->second;
    if (entry.is_kept || entry.group->serves() || listeners.ListensOn(entry.group->front_desk())) {
      ++each;
    } else {
      unused.push_back(std::move(entry.group));
      each = groups_.erase(each);
    }
  }
  return unused;
}

void ServerPollers::DestroyUnused(std::vector<std::unique_ptr<PollerGroup>> unused) {
  for (std::unique_ptr<PollerGroup>& group : unused) PollerGroup::Destroy(std::move(group));
}

void ServerPollers::CloseProofs() {
  std::vector<PollerGroup*> groups;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [key, entry] : groups_) groups.push_back(entry.group.get());
  }
  for (PollerGroup* const group : groups) group->CloseProofs();
}

// ---- Memory

absl::StatusOr<Buffer> ServerPollers::AllocateBuffer(size_t size_bytes, absl::string_view uri) {
  RuntimeOr runtime = RuntimeForBuffers(uri);
  if (!runtime.ok()) return runtime.status();
  absl::StatusOr<Buffer> buffer = Buffer::Allocate((*runtime)->buffers(), size_bytes);
  if (buffer.ok() && !uri.empty()) {  // A service fills it before the server listens, which will be there.
    absl::MutexLock lock(&mutex_);
    for (auto& [key, entry] : groups_) entry.is_kept |= entry.group->runtime() == *runtime;
  }
  return buffer;
}

// Creates the pollers that Listen() would create. Listen() then uses these.
ServerPollers::RuntimeOr ServerPollers::RuntimeForBuffers(absl::string_view text) {
  if (text.empty()) {
    absl::MutexLock lock(&mutex_);
    if (!groups_.empty()) return groups_.begin()->second.group->runtime();
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
  absl::StatusOr<PollerGroup*> group = At(uri->scheme, addresses->front());
  if (any && !group.ok()) group = At(std::string(transport::kFallbackScheme), addresses->front());
  if (!group.ok()) return group.status();
  return (*group)->runtime();
}

absl::StatusOr<Buffer> ServerPollers::AllocateOn(absl::string_view scheme, size_t size_bytes) const {
  RuntimeOr runtime = ServingRuntime(scheme, "");
  if (!runtime.ok()) return runtime.status();
  return Buffer::Allocate((*runtime)->buffers(), size_bytes);
}

uint64_t ServerPollers::RefusalsOn(absl::string_view scheme) const {
  const RuntimeOr runtime = ServingRuntime(scheme, "");
  return runtime.ok() ? (*runtime)->buffers().refusals() : 0;
}

ServerPollers::RuntimeOr ServerPollers::RuntimeAt(absl::string_view scheme,
                                                  const SocketAddress& address) const {
  return ServingRuntime(scheme, DeviceFor(scheme, address));
}

ServerPollers::RuntimeOr ServerPollers::ServingRuntime(absl::string_view scheme,
                                                       const std::string& device) const {
  absl::MutexLock lock(&mutex_);
  auto found = groups_.find({std::string(scheme), device});
  if (found == groups_.end()) found = groups_.lower_bound({std::string(scheme), ""});
  if (found == groups_.end() || found->first.first != scheme) {
    return absl::UnavailableError("the server is shutting down");
  }
  return found->second.group->runtime();
}

// ---- Which there are

std::vector<ServingPoller*> ServerPollers::Serving() const {
  std::vector<ServingPoller*> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : groups_) {
    const std::vector<ServingPoller*> serving = entry.group->Serving();
    all.insert(all.end(), serving.begin(), serving.end());
  }
  return all;
}

std::vector<ServerPollers::Named> ServerPollers::NamedServing() const {
  std::vector<Named> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& [scheme_and_device, entry] : groups_) {
    const auto& [scheme, device] = scheme_and_device;
    const std::string prefix = absl::StrCat(scheme, device.empty() ? "" : " ", device, " ");
    const std::vector<ServingPoller*> serving = entry.group->Serving();
    for (size_t number = 0; number < serving.size(); ++number) {
      all.push_back(
          {absl::StrCat(prefix, number), std::string(entry.group->runtime()->scheme()), serving[number]});
    }
  }
  return all;
}

std::vector<std::pair<std::string, std::shared_ptr<transport::Runtime>>> ServerPollers::NamedRuntimes()
    const {
  std::vector<std::pair<std::string, std::shared_ptr<transport::Runtime>>> runtimes;
  absl::MutexLock lock(&mutex_);
  for (const auto& [scheme_and_device, entry] : groups_) {
    const auto& [scheme, device] = scheme_and_device;
    runtimes.emplace_back(absl::StrCat(scheme, device.empty() ? "" : " ", device), entry.group->runtime());
  }
  return runtimes;
}

bool ServerPollers::serves() const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : groups_) {
    if (entry.group->serves()) return true;
  }
  return false;
}

bool ServerPollers::on_one() const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : groups_) {
    if (entry.group->on_one()) return true;
  }
  return false;
}

void ServerPollers::AddTo(ServerStats& stats) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, entry] : groups_) entry.group->AddTo(stats);
}

}  // namespace hawser::internal
