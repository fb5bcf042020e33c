#ifndef HAWSER_TRANSPORT_FABRIC_FABRIC_H_
#define HAWSER_TRANSPORT_FABRIC_FABRIC_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/base/socket_address.h"

// What a NIC does, in verbs terms: the seam between the code that ships (transport/, rpc/) and what carries
// its bytes. Each word means what it means in verbs; where a fabric is not a NIC, it behaves as one would.
//
// What every fabric promises (tests/transport/fabric/fabric_contract_*.cc run over all of them):
//  - Completions of one send queue come in posting order. Nothing is promised across queues.
//  - A successful SEND completion means that the peer's receive queue took the message. The completion of a
//    later signaled send also proves an unsignaled one and frees its place in the send queue.
//  - A SEND that finds no posted receive is RNR. Retries are finite; then the requester gets kRnrRetryExceeded
//    and its queue pair is in error. If the receiving side has set QueuePairOptions::sends_wait, the SEND
//    waits instead.
//  - After an error every posted work request, send and receive, completes with kFlushed. If a completion's
//    status is not kSuccess, only its wr_id, status and qp_num are defined.
//  - A READ or WRITE outside what was granted, or with a revoked or foreign rkey, fails the *requester* with
//    kRemoteAccessError, changes no memory, and puts both queue pairs in error.
//  - A SEND posted after a READ may overtake it. Send from the READ's completion when the order matters.
//  - A WRITE is visible to the peer's CPU once a later SEND on the same queue pair has been received.
//  - Receives may complete before OnEstablished(). No handler is called after its queue pair was destroyed.
namespace hawser::fabric {

// Most private data, in bytes, of each step of connecting (rdma_cm over InfiniBand and RoCE;
// rdma_connect(3)). A fabric may pad it with zeros, so it carries its own length.
inline constexpr size_t kConnectPrivateDataMax = 56;
inline constexpr size_t kAcceptPrivateDataMax = 196;
inline constexpr size_t kRejectPrivateDataMax = 148;

// Gather or scatter entries of one work request. siw allows 6; a message needs a header and a few
// segments.
inline constexpr size_t kSgeMax = 6;

// A range of registered memory.
struct Sge {
  uint8_t* address = nullptr;
  uint32_t length = 0;  // Bytes, at least 1.
  uint32_t lkey = 0;    // Of the MemoryRegion that the whole range lies in.
};

// kPush: sends ahead what the peer is about to READ, see QueuePair::push_bytes_max(). kRevoke: only in
// completions, see QueuePair::Revoke().
enum class Opcode : uint8_t { kSend, kRead, kWrite, kPush, kReceive, kRevoke };

// One entry of the send queue.
struct SendWorkRequest {
  uint64_t wr_id = 0;
  Opcode opcode = Opcode::kSend;  // kSend, kRead, kWrite or kPush.
  // Asks for a completion. A failed work request completes whether signaled or not.
  bool signaled = false;
  // 1 to kSgeMax entries, at least 1 byte together. Copied by the post; the fabric owns the memory they name
  // until this request, or a later signaled one, has completed.
  absl::Span<const Sge> sges;
  // kRead and kWrite: where in the peer's memory, and the rkey that the peer's QueuePair::Grant() returned.
  // kPush: as the peer would say in its READ.
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
};

// One entry of the receive queue: one buffer for one SEND of the peer.
struct ReceiveWorkRequest {
  uint64_t wr_id = 0;
  Sge buffer;
};

// ibv_wc_status, without what no fabric of ours can produce.
enum class CompletionStatus : uint8_t {
  kSuccess,
  kLocalError,              // Our own memory, request or receive was wrong: IBV_WC_LOC_*_ERR.
  kRemoteAccessError,       // IBV_WC_REM_ACCESS_ERR
  kRemoteInvalidRequest,    // IBV_WC_REM_INV_REQ_ERR: message longer than the receive, too many READs.
  kRemoteOperationError,    // IBV_WC_REM_OP_ERR
  kRnrRetryExceeded,        // IBV_WC_RNR_RETRY_EXC_ERR: the peer posted no receive.
  kTransportRetryExceeded,  // IBV_WC_RETRY_EXC_ERR: the peer does not answer.
  kFlushed,                 // IBV_WC_WR_FLUSH_ERR: an earlier error, or Disconnect(), ended the queue pair.
};

// "IBV_WC_REM_ACCESS_ERR (the peer refused the address or rkey of a READ or WRITE)": its name, and what it
// means.
absl::string_view Describe(CompletionStatus status);

struct Completion {
  uint64_t wr_id = 0;
  uint32_t qp_num = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
  Opcode opcode = Opcode::kSend;
  uint32_t byte_len = 0;  // kReceive: length of the message. Otherwise undefined.
};

// Registered memory: the fabric may send from it and receive into it while this object lives. Peers cannot
// reach it without QueuePair::Grant(). It outlives every work request and grant that names it.
class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  virtual uint32_t lkey() const = 0;
};

// CLOCK_MONOTONIC, in nanoseconds.
int64_t MonotonicNs();

// The completions of all queue pairs that were created on it, and those pairs' connection events (with verbs:
// an ibv_cq, its ibv_comp_channel and an rdma_event_channel).
// Thread:   belongs to one thread at a time, except Wake(). Every handler is called from inside Poll().
class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;

  // Moves the fabric on and collects up to `completions.size()` completions; returns how many. Never blocks.
  // Calls the handlers of connections and listeners that have events. If more completions wait than there is
  // room for, it may do nothing else. With no room at all, it polls connections and listeners.
  virtual size_t Poll(absl::Span<Completion> completions) = 0;

  // Arms, polls once more inside, and sleeps until Poll() may have something to do, Wake() was called since
  // the last wait, or CLOCK_MONOTONIC reaches `when_ns`; kNoEnd: no bound. May return early for no reason.
  // The caller need not call Poll() before it. Another thread may call Poll() while this one waits. The time
  // is absolute, so that a caller that waits for many answers need not read the clock for each.
  virtual void WaitUntil(int64_t when_ns) = 0;
  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  // The same with a timeout; absl::InfiniteDuration(): no bound.
  void Wait(absl::Duration timeout);

  // Ends the current or the next wait. From any thread; cheap when called again before that.
  virtual void Wake() = 0;
};

// Receives the events of one connection. Called from inside CompletionQueue::Poll().
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // The connection carries traffic. `private_data`: requester, what the peer gave to Accept(); responder,
  // empty.
  virtual void OnEstablished(absl::string_view private_data) = 0;

  // Instead of OnEstablished(): the peer rejected with `private_data` (PermissionDenied), or nothing listens
  // there, no route, no answer (Unavailable; private_data empty). For a responder: the requester disconnected
  // before Accept() reached it (Unavailable). The queue pair is in error.
  virtual void OnConnectFailed(const absl::Status& why, absl::string_view private_data) = 0;

  // The peer disconnected, died, or broke the fabric's protocol; `why` is Unavailable or DataLoss, and
  // carries the violation if there was one (ViolationOf()). An earlier Poll() has returned every SEND that
  // arrived before. The queue pair may still look healthy and flush nothing until Disconnect() is called.
  virtual void OnDisconnected(const absl::Status& why) = 0;
};

// A peer's request to connect, not answered yet. Destroying it rejects with no private data.
// Thread: may be moved to the thread of another CompletionQueue and be accepted there.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;

  // What the peer gave to Connect(), perhaps padded with zeros.
  virtual absl::string_view private_data() const = 0;
  virtual SocketAddress peer_address() const = 0;

  // READs that the peer lets both sides have outstanding, if programs choose that. With verbs the devices
  // choose it: never 0.
  virtual uint32_t read_depth() const { return 1; }

  // `private_data`: at most kRejectPrivateDataMax bytes.
  virtual void Reject(absl::string_view private_data) = 0;
};

class ListenHandler {
 public:
  virtual ~ListenHandler() = default;
  virtual void OnConnectRequest(std::unique_ptr<ConnectRequest> request) = 0;

  // A peer sent something other than a request to connect, and the fabric disconnected it. `why` (see
  // ViolationOf()) names the violation. The handler may not destroy the listener.
  virtual void OnBadPeer(const SocketAddress& /*peer*/, const absl::Status& /*why*/) {}
};

// Listens while it lives.
class Listener {
 public:
  virtual ~Listener() = default;

  // With the real port.
  virtual SocketAddress address() const = 0;
};

struct QueuePairOptions {
  uint32_t send_depth =
      64;  // Send work requests posted and not completed (an unsignaled one counts until proved).
  uint32_t receive_depth = 64;  // Receive work requests posted and not completed.
  // Outstanding READs: as requester (initiator_depth) and as responder (responder_resources). Both sides get
  // the minimum.
  uint32_t read_depth = 16;
  // A SEND of the peer that finds no posted receive waits for one, however long that takes. Everything that
  // the peer has sent behind it waits as well, including acknowledgements and the answers to READs. It is no
  // RNR. The owner of the queue pair ends the connection if it never has a receive. Only where
  // Fabric::sends_can_wait().
  bool sends_wait = false;
  // The local address, and so the NIC, that Connect() uses; port 0: any. AF_UNSPEC: the route to the peer
  // decides.
  SocketAddress local_address;
};

// A reliable connected queue pair (RC).
// Thread:   that of its CompletionQueue.
// Lifetime: destroy it after Disconnect() and after every posted work request has come back. If it is
//           destroyed earlier (a flush does not come), it no longer uses any memory when the destructor
//           returns, and its outstanding work requests never complete.
class QueuePair {
 public:
  virtual ~QueuePair() = default;

  virtual uint32_t qp_num() const = 0;

  // READs that may be outstanding: the agreed read depth. Valid from OnEstablished() on.
  virtual uint32_t read_depth() const = 0;

  // Valid from Connect() or Accept() on.
  virtual SocketAddress peer_address() const = 0;
  virtual SocketAddress local_address() const = 0;

  // Starts to connect; the handler is notified of the result. It has no useful timeout of its own (rdma_cm:
  // 102 s): call Disconnect() to give up. `private_data`: at most kConnectPrivateDataMax bytes.
  // InvalidArgument: that is too long, or `address` is of another family than
  // QueuePairOptions::local_address.
  virtual absl::Status Connect(const SocketAddress& address, absl::string_view private_data) = 0;

  // Answers `request`, which may be destroyed then. After an error the caller can still reject it, so that
  // the peer gets the reason. `private_data`: at most kAcceptPrivateDataMax bytes. InvalidArgument: that is
  // too long, or `request` came over a fabric of another kind.
  virtual absl::Status Accept(ConnectRequest& request, absl::string_view private_data) = 0;

  // A guess: the peer runs on the very core that this thread is on, so it can start only when this thread
  // pauses, and posting early instead of in one batch gains nothing. Never on a NIC.
  virtual bool PeerSharesCore() const = 0;

  // Posts in order, as one chain (one doorbell, one system call); all or nothing. Not before OnEstablished(),
  // or, at the accepting side, the first receive completion. ResourceExhausted: the send queue has no room.
  // InvalidArgument: an sge does not lie in its region, or too many. FailedPrecondition: not connected, or
  // already in error.
  virtual absl::Status PostSend(absl::Span<const SendWorkRequest> requests) = 0;

  // In order; all or nothing; also before connecting. ResourceExhausted, InvalidArgument, FailedPrecondition:
  // as for PostSend().
  virtual absl::Status PostReceive(absl::Span<const ReceiveWorkRequest> requests) = 0;

  // Withdraws the newest posted receives, at most `wr_ids.size()` of them, but none that a SEND has reached.
  // Writes their wr_ids, newest first, and returns how many there are: their memory is the caller's again,
  // and no completion follows. 0: there is none, the queue pair is in error, or the fabric cannot do this
  // (verbs cannot). A caller expects no traffic for a while, so a fabric may free what only traffic needs.
  virtual size_t WithdrawReceives(absl::Span<uint64_t> /*wr_ids*/) { return 0; }

  // Lets this one peer, over this one queue pair, READ (or WRITE) the range, which lies in one region: from a
  // SEND on that is posted later, until it is revoked or the queue pair has come back whole after its end.
  // Returns the rkey, never 0. A memory window of type 2 with verbs: nothing is pinned or mapped by this. On
  // a device without such windows peers on other queue pairs of the process could use the rkey, if they
  // guessed it; see verbs/windows.h. Each byte may be READ four times at least; a fabric in software refuses
  // a peer that goes on. ResourceExhausted: too many grants at once (at least `send_depth` are possible).
  // FailedPrecondition: not connected yet, or already in error (a later poll notifies the handler).
  enum class Access : uint8_t { kRead, kWrite };
  virtual absl::StatusOr<uint32_t> Grant(const Sge& range, Access access) = 0;

  // Revokes a grant. The fabric owns the memory until a completion with `wr_id` proves that the peer can no
  // longer touch it. That completion has no order with those of the send queue, and takes no place there. If
  // the peer is using the memory at that moment, the queue pair may be put in error. (With verbs this is a
  // work request, LOCAL_INV, which nothing but its completion proves.)
  virtual void Revoke(uint32_t rkey, uint64_t wr_id) = 0;

  // Bytes that one kPush may carry; 0: this fabric has none, or the peer does not take them. Valid from
  // OnEstablished() on. A push is posted right behind the SEND that grants its memory. It spares the peer's
  // READ a round trip if the peer asks for just that memory at once (TakePush()); otherwise its bytes are
  // dropped, and the peer READs them.
  virtual uint32_t push_bytes_max() const { return 0; }

  // Instead of a READ of `remote_address` and `rkey` into `sink`: true if the peer has pushed just that, and
  // the last Poll() has found it, or has returned the SEND before it. The fabric owns the sink until a
  // completion with `wr_id` and opcode kRead, which has no order with other completions and takes no place in
  // the send queue. After the next Poll() it may be gone. Several pushes, each with its SEND, may be at hand;
  // one that was posted with its SEND, in one call, is found with it.
  virtual bool TakePush(uint64_t /*wr_id*/, const Sge& /*sink*/, uint64_t /*remote_address*/,
                        uint32_t /*rkey*/) {
    return false;
  }

  // Ends the connection, or gives up connecting. Later polls return everything posted as flushed. Idempotent.
  // The handler is not called any more.
  virtual void Disconnect() = 0;

  // The same, and sends `why` to the peer if the fabric can carry it without waiting: once, and never behind
  // anything that the peer has not read. TCP does. Verbs do not: the private data of a disconnect does not
  // arrive on every device (rdma_cm has no parameter for it).
  virtual void DisconnectBecause(absl::string_view /*why*/) { Disconnect(); }
};

// One device. Outlives everything made from it. A device may fail, or be removed, and come back (a reset):
// its connections end, and connecting fails with Unavailable meanwhile. For callers memory stays registered,
// and listeners listen again when the device is back.
// Thread:   any.
class Fabric {
 public:
  virtual ~Fabric() = default;

  // The scheme of the addresses it serves: "tcp", "rdma".
  virtual absl::string_view scheme() const = 0;

  // The device's NUMA node, whose memory it reaches fastest; -1: none, or unknown.
  virtual int numa_node() const { return -1; }

  // QueuePairOptions::sends_wait is possible. With verbs it is not: a SEND without a receive costs retries,
  // and while one waits nothing else of its sender's crosses.
  virtual bool sends_can_wait() const { return false; }

  // Registers [address, address + length_bytes) for local use. Slow: 16 us + 0.06 ns/B on mlx5 (the model in
  // UCX's ib_md.c), so slabs are registered, not messages.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(uint8_t* address, size_t length_bytes) = 0;

  // `depth`: most completions that can wait, over all queue pairs on it.
  virtual absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t depth) = 0;

  // `completion_queue` and `handler` outlive the result. On the thread of `completion_queue`.
  // InvalidArgument: another fabric has made `completion_queue`, or the depths are impossible.
  virtual absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(CompletionQueue& completion_queue,
                                                                     const QueuePairOptions& options,
                                                                     ConnectionHandler& handler) = 0;

  // Port 0: any free one. `handler` receives requests on the thread of `completion_queue`. AlreadyExists:
  // address in use; PermissionDenied, InvalidArgument: not ours to listen on.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           ListenHandler& handler) = 0;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_FABRIC_H_
