#ifndef HAWSER_TRANSPORT_RUNTIME_H_
#define HAWSER_TRANSPORT_RUNTIME_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/transport/memory/user_regions.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/security.h"
#include "hawser/transport/sharing/read_ledger.h"
#include "hawser/transport/wire/message.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// The most pollers that RuntimeOptions::pollers may ask for.
inline constexpr int kPollersMost = 1024;

struct RuntimeOptions {
  // Up to kPollersMost. 0: decided by the runtime. It starts one poller at once, and another when a
  // connection is assigned to one that does not run yet, up to Runtime::poller_limit(). With
  // PollerOptions::cores: one for each of these cores, all at once.
  int pollers = 0;
  PollerOptions poller = {};
  BufferPoolOptions pool = {};
  // The device of rdma://, as `ibv_devices` names it, "mlx5_1". Empty: the one that HAWSER_RDMA_DEVICE names,
  // else the first with an active port that makes reliable connections. A program that uses several has a
  // runtime for each.
  std::string rdma_device = {};
  // What marks the packets of rdma:// for the switches, both ways, of the connections that this side makes:
  // the traffic class of RoCE v2 (DSCP in its upper six bits), from which the kernel also makes the service
  // level. On InfiniBand the subnet manager may make a service level of it. Empty: the system's own.
  std::optional<uint8_t> rdma_traffic_class = {};
  // How the peers of rdma:// READ large messages.
  RdmaGrants rdma_grants = RdmaGrants::kAutomatic;
};

// One fabric, the registered memory of it, and pollers on it: what channels and servers share.
// Thread:   any.
// Lifetime: shared by those that use it. The last owner to release it joins its threads; if that is on one of
//           its pollers, a thread started for this does. Without threads of its own it must not be released
//           there.
class Runtime {
 public:
  // `scheme`: of the URIs that it serves, "tcp". InvalidArgument: no such fabric, an option is out of its
  // range, or the system does not let a poller run on one of PollerOptions::cores.
  static absl::StatusOr<std::shared_ptr<Runtime>> Create(absl::string_view scheme,
                                                         const RuntimeOptions& options = {});

  // The process's runtime for clients of `scheme`, one for each device, created at first use, never
  // destroyed. A child gets a new one after fork().
  static absl::StatusOr<std::shared_ptr<Runtime>> Default(absl::string_view scheme,
                                                          const std::string& rdma_device = "");

  // `fabric` instead of one by its name, `environment` instead of the real one (tests). `start_threads`
  // false: only the caller polls.
  static absl::StatusOr<std::shared_ptr<Runtime>> CreateOn(std::shared_ptr<fabric::Fabric> fabric,
                                                           const RuntimeOptions& options, bool start_threads,
                                                           Environment& environment = Environment::Real());

  absl::string_view scheme() const { return fabric_->scheme(); }
  // OK, or InvalidArgument: an option is out of its range.
  static absl::Status CheckOptions(const RuntimeOptions& options);

  // OK, or InvalidArgument: it has another fabric than URIs of `scheme` ask for.
  absl::Status CheckServes(absl::string_view scheme) const;
  // Its connections can have TLS. Otherwise each is proved, with credentials.
  bool carries_tls() const { return fabric_->carries_tls(); }

  // Over which connections of this runtime are proved with credentials, if its fabric carries no TLS. Null:
  // TCP, over a runtime of the server's own, or the process's default one. `runtime` (tests) carries TLS to
  // the same addresses.
  const std::shared_ptr<Runtime>& prove_over() const { return prove_over_; }
  void set_prove_over(std::shared_ptr<Runtime> runtime) { prove_over_ = std::move(runtime); }
  // For transport/ only.
  fabric::Fabric& fabric() { return *fabric_; }
  Environment& environment() { return *environment_; }
  BufferPool& buffers() { return *buffers_; }
  // Memory of programs that is registered with the fabric.
  UserRegions& user_regions() { return *user_regions_; }
  // Those that run now; each has a message pool of its own.
  Poller& poller(size_t i) { return *pollers_[i % poller_count()]; }
  size_t poller_count() const { return poller_count_.load(std::memory_order_acquire); }
  // The most pollers that will run. If the options do not say, the least of: the cores that the creating
  // thread may use (those near the device, if there are some); the CPU quota of the control group (cpu.max),
  // rounded up; RLIMIT_NOFILE / 64, since a poller over TCP takes four file descriptors; 32.
  size_t poller_limit() const { return pollers_.size(); }
  // A further poller, which calls no code of the application: servers listen there, so that no handler keeps
  // them from answering. Created at its first use, with a thread of its own that sleeps when there is nothing
  // to do; without threads it is poller(0). Not OK: the fabric, or the system, has no room for it.
  absl::StatusOr<Poller*> FrontDesk();
  // The poller for the next connection: each up to poller_limit() in turn. Starts it if it does not run. If
  // the system refuses, logs that, and takes those that run for the next 10 s.
  Poller& NextPoller();

 private:
  Runtime() = default;
  ~Runtime() = default;
  static void Destroy(Runtime* runtime);
  bool HeldByThisThread() const;
  absl::StatusOr<std::unique_ptr<Poller>> NewPoller(const PollerOptions& options);
  // The poller with the number poller_count().
  absl::Status StartOneMore() ABSL_EXCLUSIVE_LOCKS_REQUIRED(start_mutex_);
  absl::Status StartNear(Poller& poller) const;

  Environment* environment_ = nullptr;
  std::shared_ptr<fabric::Fabric> fabric_;
  std::shared_ptr<Runtime> prove_over_;
  std::shared_ptr<BufferPool> buffers_;
  std::unique_ptr<UserRegions> user_regions_;
  std::unique_ptr<ReadLedger> read_ledger_;
  std::set<int> cores_;  // Where threads run that PollerOptions::cores does not bind. Empty: anywhere.
  absl::Mutex start_mutex_;
  int64_t start_again_ns_ ABSL_GUARDED_BY(start_mutex_) = 0;  // No poller is started before.
  // Sized once. The first poller_count_ are set and never change; the rest are null.
  std::vector<std::unique_ptr<Poller>> pollers_;
  std::atomic<size_t> poller_count_{0};
  PollerOptions poller_options_;
  mutable absl::Mutex front_desk_mutex_;
  std::unique_ptr<Poller> front_desk_ ABSL_GUARDED_BY(front_desk_mutex_);
  bool has_threads_ = false;
  std::atomic<size_t> next_{0};
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_RUNTIME_H_
