#ifndef HAWSER_TRANSPORT_LANE_LENT_MEMORY_H_
#define HAWSER_TRANSPORT_LANE_LENT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/fork.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"

namespace hawser::transport {

class LentMemory;

// What lends memory to one peer: a LaneServer.
class Lender {
 public:
  // On its poller: ends its grants on `memory`.
  virtual void Revoke(const LentMemory& memory) = 0;

 protected:
  ~Lender() = default;
};

// A lender, as other threads know it.
struct LendingLane {
  const std::shared_ptr<Runtime> runtime;  // Keeps the poller.
  Poller& poller;
  Lender* lender;  // Used on the poller. Null: it is gone.
};

// Memory of this process that peers reach by one-sided operations: its registration with each fabric that
// lends it, and which lanes do. It moves round this ring:
//   owner -> lent, while a lane has a grant on it -> owner, once AwaitUnreachable() has returned.
// Thread:   any, unless a method says otherwise.
// Lifetime: shared by its owner and the lanes that lend it.
class LentMemory final : public std::enable_shared_from_this<LentMemory> {
 public:
  // The run of the owner's process, and the number of the memory there: see LaneTicket.
  struct Name {
    uint64_t owner = 0;
    uint64_t region = 0;
  };

  // Zeroed memory of its own. ResourceExhausted: the system has none.
  static absl::StatusOr<std::shared_ptr<LentMemory>> Map(const Name& name, size_t size_bytes,
                                                         Environment& environment);
  // Memory of the caller, which stays until AwaitUnreachable() has returned.
  LentMemory(const Name& name, uint8_t* address, size_t size_bytes, Environment& environment);
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  const Name& name() const { return name_; }
  // It goes when the last lane has left: its owner need not wait for that.
  bool is_mapped() const { return mapped_; }
  uint8_t* address() const { return address_; }
  size_t size_bytes() const { return size_bytes_; }
  // This is a child made by fork() after it: nothing else may be called, and it is not destroyed.
  bool in_child() const { return fork_mark_.in_child(); }
  bool revoked() const;
  // How many lanes lend it.
  size_t lane_count() const;

  // `on_revoked` runs inside the first Revoke(), when no lane can begin to lend it any more. Before it is
  // shared with any other.
  void SetOnRevoked(absl::AnyInvocable<void()> on_revoked) { on_revoked_ = std::move(on_revoked); }

  // Registers it with the fabric of `runtime`, unless it is: slow. FailedPrecondition: it is revoked.
  absl::Status RegisterWith(const std::shared_ptr<Runtime>& runtime);

  // ---- For a lane, on its poller.

  // Until Leave() the lane may have grants on it. Returns the lkey. FailedPrecondition: it is revoked.
  absl::StatusOr<uint32_t> Enter(const std::shared_ptr<LendingLane>& lane);
  // Once for each Enter(): that grant is revoked, or its queue pair is destroyed.
  void Leave(const std::shared_ptr<LendingLane>& lane);

  // ---- For the owner.

  // Lends it no more, and has every lane end its grants. A lane whose peer does not answer is ended.
  void Revoke();
  // After that: returns when no peer can reach the memory; it is not registered any more then. Not on a
  // poller.
  void AwaitUnreachable();

 private:
  struct Registration {
    std::shared_ptr<Runtime> runtime;
    std::unique_ptr<fabric::MemoryRegion> region;
  };

  const Name name_;
  uint8_t* const address_;
  const size_t size_bytes_;
  Environment& environment_;
  const ForkMark fork_mark_;
  bool mapped_ = false;  // Map() has made it.
  absl::AnyInvocable<void()> on_revoked_;
  mutable absl::Mutex mutex_;
  absl::CondVar left_;
  bool revoked_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<Registration> registrations_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::shared_ptr<LendingLane>, uint32_t> lanes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LENT_MEMORY_H_
