#ifndef HAWSER_RPC_ARRIVAL_COUNTER_H_
#define HAWSER_RPC_ARRIVAL_COUNTER_H_

// Learns that blocks which a client WRITEs into memory of this server are complete there:
//
//   absl::Status Open(hawser::ServerContext& context, Tables::OpenParams::Reader,
//                     Tables::OpenResults::Builder reply) override {
//     return context.Grant(*blocks_, {.access = hawser::Access::kWrite, .counter = &arrived_},
//                          reply.initTable());
//   }
//   void AwaitBlocks(uint64_t count) {  // Whichever come first.
//     if (!arrived_.CallWhen(count, [this] { all_there_.Notify(); })) all_there_.Notify();
//     all_there_.WaitForNotification();
//   }
//   absl::Notification all_there_;
//   hawser::ArrivalCounter arrived_;  // Destroyed first: its callback uses the other.

#include <cstdint>
#include <memory>

#include "absl/functional/any_invocable.h"

namespace hawser {

namespace transport {
class Arrivals;
}

// Counts the WRITEs of clients under the grants that name it (GrantOptions::counter), any number of them, of
// any clients and memories of a server. A thread that has read n from count() sees the bytes of n such
// WRITEs, all of each. The count does not say which: they have no order, and what was written later may have
// changed these bytes again. One Write() is one WRITE, however large.
//
// The client's NIC sends a short message behind its WRITEs on the same queue pair, and the poller of the
// server counts when it has received that. Then they are complete and visible: a responder executes the
// requests of a queue pair in their order, and what an RDMA WRITE has written may be relied on once a later
// SEND of that queue pair has completed a receive, with InfiniBand, RoCE and iWARP alike. Polling the memory
// itself would not show it, except on the few devices that promise it. So a counter takes some processor time
// of the server's: one message for each WRITE of a client that waits for each, and for all that it has posted
// meanwhile if it does not.
//
// While a handler holds the server's poller of a client's lane, nothing is counted; after ten seconds the
// client ends the lane, and all that is in flight on it fails.
//
// Write() of the client ends with OK when its WRITE was counted. It is counted once, or not at all; a
// Write() that has failed says in its status whether it may be. READs and atomics under such a grant are not
// counted.
//
// A counter is as honest as the clients that have the grants: over RDMA a server does not see WRITEs, so a
// client that lies can count, up to 1,024 with a message, what it has not written. Check what was written,
// and give a client that you do not trust a counter of its own.
// Thread:   any.
// After fork(): in the child it may be destroyed, and nothing else.
// Lifetime: any. It may end before its grants, its memory and its Server, and after them. Clients whose
//           grants are in use may go on WRITing, and their Write() ends with OK, but nothing counts it; a
//           ticket that was not used yet is void. To end WRITEs, revoke the memory. When
//           SharedMemory::Revoke() has returned, nothing under a grant of that memory is counted any more.
class ArrivalCounter {
 public:
  ArrivalCounter();
  ArrivalCounter(const ArrivalCounter&) = delete;
  ArrivalCounter& operator=(const ArrivalCounter&) = delete;
  // Callbacks that wait do not run. Returns when none is running, unless a callback calls it: so call it
  // without a lock that a callback takes.
  ~ArrivalCounter();

  // WRITEs so far, from 0 on. An acquire load: cheap enough to be polled.
  uint64_t count() const;

  // Has `callback` run once, as soon as the count is `n` or more, on the thread that drives the poller of the
  // connection whose WRITE has reached it; callbacks for smaller numbers begin first. Keep it short:
  // everything on that poller waits. It may call CallWhen(), and destroy the counter. False: the count is `n`
  // or more already, and `callback` does not run. Never runs inside this call. An empty callback is a CHECK.
  [[nodiscard]] bool CallWhen(uint64_t n, absl::AnyInvocable<void()> callback);

  // For the library.
  const std::shared_ptr<transport::Arrivals>& arrivals() const { return arrivals_; }

 private:
  std::shared_ptr<transport::Arrivals> arrivals_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_ARRIVAL_COUNTER_H_
