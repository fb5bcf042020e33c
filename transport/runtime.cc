#include "hawser/transport/runtime.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/check.h"
#include "hawser/base/cores.h"
#include "hawser/base/option_range.h"
#include "hawser/base/thread.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/poller/queue_depths.h"

namespace hawser::transport {
namespace {

struct Defaults {
  absl::Mutex mutex;
  using Key = std::pair<std::string, std::string>;  // Scheme and device.
  std::map<Key, std::shared_ptr<Runtime>> runtimes ABSL_GUARDED_BY(mutex);
};

// Never destroyed, because channels may be used until the process ends.
Defaults& ProcessDefaults() {
  static Defaults* const defaults = new Defaults;
  return *defaults;
}

// Those that this thread may use, or might before it was bound as a poller's.
std::set<int> CoresOfRuntime() { return CoresBeforeBindTo().empty() ? AllowedCores() : CoresBeforeBindTo(); }

// The cores of the device's NUMA node among them. Empty: the device is on no node, or none of its cores may
// be used.
std::set<int> CoresNear(const fabric::Fabric& fabric) {
  const std::set<int> of_node = CoresOfNode(fabric.numa_node());
  const std::set<int> allowed = CoresOfRuntime();
  std::set<int> near;
  std::set_intersection(of_node.begin(), of_node.end(), allowed.begin(), allowed.end(),
                        std::inserter(near, near.end()));
  return near;
}

// A bound of the default of Runtime::poller_limit(), beside kPollersDefaultMost.
constexpr size_t kFileDescriptorsPerPoller = 64;

constexpr absl::Duration kStartAgainAfter = absl::Seconds(10);

size_t PollersByDefault(size_t cores) {
  if (const std::optional<double> quota = CpuQuota())
    cores = std::min(cores, static_cast<size_t>(std::ceil(*quota)));
  rlimit descriptors = {};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    cores = std::min<size_t>(cores, descriptors.rlim_cur / kFileDescriptorsPerPoller);
  }
  return std::clamp<size_t>(cores, 1, kPollersDefaultMost);
}

}  // namespace

absl::Status Runtime::CheckOptions(const RuntimeOptions& options) {
  return FirstError(
      CheckOption("RuntimeOptions::pollers", int64_t{options.pollers}, int64_t{0}, int64_t{kPollersMost},
                  "0: up to one for each core"),
      CheckEnumOption("RuntimeOptions::rdma_grants", options.rdma_grants, RdmaGrants::kShared,
                      "kAutomatic, kWindows, kRegistered, kShared"),
      CheckEnumOption("PollerOptions::mode", options.poller.mode, PollingMode::kSleep,
                      "kAdaptive, kSpin, kSleep"),
      CheckOption("PollerOptions::spin", options.poller.spin, absl::ZeroDuration(), kSpinMost),
      CheckOption("PollerOptions::host_memory_share", options.poller.host_memory_share, 0.0, 1.0),
      CheckOption("BufferPoolOptions::limit_bytes", uint64_t{options.pool.limit_bytes}, uint64_t{kSlabBytes},
                  std::numeric_limits<uint64_t>::max()),
      CheckOption("BufferPoolOptions::idle", options.pool.idle.value_or(absl::InfiniteDuration()),
                  absl::Milliseconds(1), absl::InfiniteDuration(), "infinite: memory is kept"));
}

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::Create(absl::string_view scheme,
                                                         const RuntimeOptions& options) {
  // Before a device is opened.
  if (absl::Status in_range = CheckOptions(options); !in_range.ok()) return in_range;
  absl::StatusOr<std::shared_ptr<fabric::Fabric>> fabric =
      CreateFabric(scheme, options.rdma_device, options.rdma_traffic_class, options.rdma_grants);
  if (!fabric.ok()) return fabric.status();
  return CreateOn(*std::move(fabric), options, /*start_threads=*/true);
}

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::CreateOn(std::shared_ptr<fabric::Fabric> fabric,
                                                           const RuntimeOptions& options, bool start_threads,
                                                           Environment& environment) {
  if (absl::Status in_range = CheckOptions(options); !in_range.ok()) return in_range;
  LogLevel();  // A wrong HAWSER_LOG_LEVEL is said now, and not with the first line, which may never come.
  std::shared_ptr<Runtime> runtime(new Runtime, &Runtime::Destroy);
  runtime->environment_ = &environment;
  runtime->has_threads_ = start_threads;
  runtime->poller_options_ = options.poller;
  runtime->fabric_ = std::move(fabric);
  runtime->buffers_ = std::make_shared<BufferPool>(
      runtime->fabric_, options.pool,
      start_threads ? BufferPool::Threads::kMayStart : BufferPool::Threads::kNone);
  runtime->user_regions_ = std::make_unique<UserRegions>(*runtime->fabric_, environment);
  runtime->read_ledger_ = std::make_unique<ReadLedger>(*runtime->buffers_);
  runtime->cores_ = CoresNear(*runtime->fabric_);
  if (runtime->cores_.empty()) runtime->cores_ = CoresOfRuntime();
  const std::vector<int>& bound = options.poller.cores;
  size_t limit = static_cast<size_t>(options.pollers);
  size_t at_once = limit;
  if (limit == 0) {
    limit = at_once = std::max<size_t>(bound.size(), 1);
    // Without threads the caller polls, so all pollers must exist from the start.
    if (bound.empty() && start_threads) limit = PollersByDefault(runtime->cores_.size());
  }
  absl::MutexLock lock(&runtime->start_mutex_);
  runtime->pollers_.resize(limit);
  while (runtime->poller_count() < at_once) {
    if (absl::Status started = runtime->StartOneMore(); !started.ok()) return started;
  }
  return runtime;
}

absl::StatusOr<std::unique_ptr<Poller>> Runtime::NewPoller(const PollerOptions& options) {
  return Poller::Create(fabric_, MessagePool::Create(buffers_), *read_ledger_, options, *environment_);
}

absl::Status Runtime::StartNear(Poller& poller) const {
  // A thread that is not bound follows the process when its cpuset grows.
  const absl::Status started = poller.Start(cores_ == AllowedCores() ? std::set<int>() : cores_);
  // The poller runs best there, but not only there: a filter of system calls may forbid to choose.
  return absl::IsInvalidArgument(started) ? poller.Start() : started;
}

absl::Status Runtime::StartOneMore() {
  const size_t number = poller_count();
  absl::StatusOr<std::unique_ptr<Poller>> poller = NewPoller(poller_options_);
  if (!poller.ok()) return poller.status();
  if (has_threads_) {
    const std::vector<int>& cores = poller_options_.cores;
    const absl::Status started =
        cores.empty() ? StartNear(**poller) : (*poller)->Start({cores[number % cores.size()]});
    if (!started.ok()) return started;
  }
  pollers_[number] = *std::move(poller);
  poller_count_.store(number + 1, std::memory_order_release);
  return absl::OkStatus();
}

Poller& Runtime::NextPoller() {
  const size_t next = next_.fetch_add(1, std::memory_order_relaxed);
  if (poller_count() == poller_limit()) return poller(next);
  absl::Status started;
  {
    absl::MutexLock lock(&start_mutex_);
    while (poller_count() < std::min(poller_limit(), next + 1) && environment_->NowNs() >= start_again_ns_) {
      started = StartOneMore();
      if (!started.ok()) start_again_ns_ = After(environment_->NowNs(), kStartAgainAfter);
    }
  }
  if (!started.ok()) {
    Log(LogSeverity::kWarning, absl::StrCat(scheme(), ":// has ", poller_count(), " pollers instead of ",
                                            poller_limit(), ": ", absl::string_view(started.message())));
  }
  return poller(next);
}

absl::StatusOr<Poller*> Runtime::FrontDesk() {
  if (!has_threads_) return pollers_[0].get();
  absl::MutexLock lock(&front_desk_mutex_);
  if (front_desk_ == nullptr) {
    PollerOptions options = poller_options_;
    options.mode = PollingMode::kSleep;
    absl::StatusOr<std::unique_ptr<Poller>> made = NewPoller(options);
    if (!made.ok()) return made.status();
    // Not on the core of one of the pollers.
    if (absl::Status started = StartNear(**made); !started.ok()) return started;
    (*made)->AddAsyncInterest(1);
    front_desk_ = *std::move(made);
  }
  return front_desk_.get();
}

bool Runtime::HeldByThisThread() const {
  const auto held = [](const auto& poller) { return poller != nullptr && poller->Held(); };
  if (std::any_of(pollers_.begin(), pollers_.end(), held)) return true;
  absl::MutexLock lock(&front_desk_mutex_);
  return held(front_desk_);
}

void Runtime::Destroy(Runtime* runtime) {
  if (!runtime->HeldByThisThread()) {
    delete runtime;
    return;
  }
  // In a child after fork() this thread held the poller in the parent. Leaks the runtime.
  if (!runtime->pollers_[0]->usable_in_this_process()) return;
  HAWSER_CHECK(runtime->has_threads_, "a runtime without threads lost its last owner on one of its pollers");
  // A poller waits for all threads that are on it, and this thread is one of them.
  auto started = StartThread("hawser-end", [runtime] { delete runtime; });
  if (started.ok()) started->detach();  // Otherwise it is leaked.
}

absl::Status Runtime::CheckServes(absl::string_view scheme) const {
  if (scheme == this->scheme()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the runtime in the options serves ", this->scheme(), "://, not ", scheme, "://"));
}

absl::StatusOr<std::shared_ptr<Runtime>> Runtime::Default(absl::string_view scheme,
                                                          const std::string& rdma_device) {
  Defaults& defaults = ProcessDefaults();
  absl::MutexLock lock(&defaults.mutex);
  const Defaults::Key key(scheme, rdma_device);
  auto it = defaults.runtimes.find(key);
  if (it != defaults.runtimes.end()) {
    if (it->second->poller(0).usable_in_this_process()) return it->second;
    // In a child after fork() the parent's threads do not exist, and the sockets belong to the parent. Leaks
    // the runtime, because its destructor would wait for those threads.
    new std::shared_ptr<Runtime>(std::move(it->second));
    defaults.runtimes.erase(it);
  }
  absl::StatusOr<std::shared_ptr<Runtime>> runtime = Create(scheme, {.rdma_device = rdma_device});
  if (runtime.ok()) defaults.runtimes.emplace(key, *runtime);
  return runtime;
}

}  // namespace hawser::transport
