#ifndef HAWSER_TRANSPORT_FABRIC_FABRIC_H_
#define HAWSER_TRANSPORT_FABRIC_FABRIC_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/base/socket_address.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/tls/secret.h"

namespace hawser::tls {
class Context;
}

// The interface of a NIC, in verbs terms. It separates transport/ and rpc/ from what carries their bytes.
// Each word has the meaning that it has in verbs. A fabric that is not a NIC behaves like one.
//
// What every fabric promises (tests/transport/fabric/fabric_contract_*.cc run over all of them):
//  - Completions of one send queue arrive in posting order. The order across queues is undefined.
//  - A successful SEND completion means that the peer's receive queue took the message. The successful
//    completion of a signaled send means that every unsignaled send before it succeeded, too, and frees their
//    places in the send queue.
//  - A SEND that finds no posted receive is RNR. Retries are finite; then the requester gets
//    kRnrRetryExceeded and its queue pair is in error. If the receiving side has set
//    QueuePairOptions::sends_wait, the SEND waits instead.
//  - After an error every posted work request, send and receive, completes with kFlushed. If a completion's
//    status is not kSuccess, only its wr_id, status and qp_num are defined.
//  - A READ, WRITE or atomic outside what was granted, or with a revoked or foreign rkey, fails the
//    *requester* with kRemoteAccessError, changes no memory, and puts both queue pairs in error. So does,
//    with kRemoteInvalidRequest, an atomic of a hostile peer on 8 bytes that are not aligned: PostSend()
//    refuses it.
//  - A SEND, WRITE or atomic posted after a READ may overtake it. Post from the READ's completion when the
//    order matters. A READ or an atomic sees every WRITE that was posted before it.
//  - A WRITE is visible to the peer's CPU once a later SEND on the same queue pair has been received.
//  - A READ that begins at a multiple of 8, in memory granted with kReadRepeatedly, returns each word of 8
//    bytes whole, as some write has left it, and promises nothing of two words together; but not over iWARP,
//    whose packets end anywhere. That holds for the words that a WRITE covers as a whole: of a word at its
//    ends, of which it changes a part, a READ may see a part of the change. The bytes of a WRITE arrive in
//    any order.
//  - READs and atomics complete in posting order, whatever they overtake. So a chain of unsignaled READs with
//    a signaled one at its end is done when that completes.
//  - Receives may complete before OnEstablished(). A fabric calls no handler after its queue pair was
//    destroyed.
namespace hawser::fabric {

// The most private data, in bytes, of each step of connecting (rdma_cm over InfiniBand and RoCE;
// rdma_connect(3)). A fabric may pad it with zeros, so it carries its own length.
inline constexpr size_t kConnectPrivateDataMax = 56;
inline constexpr size_t kAcceptPrivateDataMax = 196;
inline constexpr size_t kRejectPrivateDataMax = 148;

// Gather or scatter entries of one work request, where the device has as many: see Fabric::sge_max(). siw
// allows 6; a message needs a header and a few segments.
inline constexpr size_t kSgeMax = 6;

// A range of registered memory.
struct Sge {
  uint8_t* address = nullptr;
  uint32_t length = 0;  // Bytes, at least 1.
  uint32_t lkey = 0;    // The lkey of the MemoryRegion that contains the whole range.
};

// kPush sends what the peer is about to READ, before it asks; see QueuePair::push_bytes_max(). kReceive and
// kRevoke appear only in completions; see QueuePair::Revoke().
enum class Opcode : uint8_t { kSend, kWrite, kPush, kRead, kCompareSwap, kFetchAdd, kReceive, kRevoke };

// The peer's answer brings bytes into the memory of the sges, and each counts against the READ depth.
inline constexpr bool IsAnswered(Opcode send) { return send >= Opcode::kRead; }
inline constexpr bool IsAtomic(Opcode send) { return send > Opcode::kRead; }

// What an atomic is atomic with (ibv_device_attr.atomic_cap), at the side that has the memory.
enum class Atomics : uint8_t {
  kNone,           // There are no atomics.
  kNic,            // The atomics of every peer that come through the same device.
  kWithProcessor,  // These, and the atomic instructions of the processor (std::atomic_ref).
};

// One entry of the send queue.
struct SendWorkRequest {
  uint64_t wr_id = 0;
  Opcode opcode = Opcode::kSend;  // kSend to kFetchAdd.
  // Asks for a completion. A failed work request completes whether signaled or not.
  bool signaled = false;
  // 1 to Fabric::sge_max() entries, at least 1 byte together. PostSend() copies them. The fabric owns the
  // memory they name until this request, or a later signaled one, has completed. An atomic has one of 8
  // bytes, which receives the value that the peer's memory had before.
  absl::Span<const Sge> sges;
  // kRead, kWrite and atomics: what the peer's QueuePair::Grant() returned, and an offset added to the
  // address. An atomic's is a multiple of 8. kPush: the same values that the peer would use in its READ.
  // kSend: the address is 0; the rkey is 0, or that of a grant of the peer's, which this SEND ends. That
  // needs Fabric::sends_end_grants() on both sides.
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  // kCompareSwap: if the 8 bytes of the peer are equal to `compare_add`, they become `swap`. kFetchAdd:
  // `compare_add` is added to them, modulo 2^64. In the byte order of the host, like the result.
  uint64_t compare_add = 0;
  uint64_t swap = 0;
};

// What a peer needs to READ or WRITE memory that is granted to it. It is sent to the peer.
struct Granted {
  // Of the first byte; the next byte has the next address, and `address` plus the length does not wrap. The
  // fabric chooses it. A NIC needs the virtual address of the memory. A fabric in software gives one that
  // says nothing of where the memory is, since that would help a hostile peer (ASLR).
  uint64_t address = 0;
  uint32_t rkey = 0;  // Never 0 in a grant.
};

// One entry of the receive queue: one buffer for one SEND of the peer.
struct ReceiveWorkRequest {
  uint64_t wr_id = 0;
  Sge buffer;
};

// ibv_wc_status, without the values that our fabrics never produce.
enum class CompletionStatus : uint8_t {
  kSuccess,
  kLocalError,              // Our own memory, request or receive was wrong: IBV_WC_LOC_*_ERR.
  kRemoteAccessError,       // IBV_WC_REM_ACCESS_ERR
  kRemoteInvalidRequest,    // IBV_WC_REM_INV_REQ_ERR: message longer than the receive, too many READs, an
                            // atomic on 8 bytes that are not aligned.
  kRemoteOperationError,    // IBV_WC_REM_OP_ERR
  kRnrRetryExceeded,        // IBV_WC_RNR_RETRY_EXC_ERR: the peer posted no receive.
  kTransportRetryExceeded,  // IBV_WC_RETRY_EXC_ERR: the peer does not answer.
  kFlushed,                 // IBV_WC_WR_FLUSH_ERR: an earlier error, or Disconnect(), ended the queue pair.
};

// Its name and its meaning: "IBV_WC_REM_ACCESS_ERR (the peer refused the address or rkey of a READ or
// WRITE)".
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

// Memory of a program, for Fabric::RegisterRange().
struct MemoryRange {
  enum class Kind : uint8_t {
    kHost,      // Mapped in this process. Where the device pins, all of it is pinned.
    kDmabuf,    // Of a dma-buf, which another device may own: a GPU, an NVMe controller.
    kOnDemand,  // Mapped in this process. Nothing is pinned: the device takes page faults.
  };

  Kind kind = Kind::kHost;
  // The processor may read and write it. Otherwise only a device may: `address` names it in work requests,
  // and nothing but a NIC accesses it.
  bool cpu_visible = true;
  uint8_t* address = nullptr;
  uint64_t length_bytes = 0;
  // kDmabuf: the memory begins `dmabuf_offset` bytes behind the beginning of this dma-buf.
  int dmabuf_fd = -1;
  uint64_t dmabuf_offset = 0;
};

// InvalidArgument: no address, no bytes, an end that wraps, or a dma-buf that is no file descriptor.
absl::Status CheckRange(const MemoryRange& range);

// CLOCK_MONOTONIC, in nanoseconds.
int64_t MonotonicNs();

// Collects the completions of all queue pairs that were created on it, and their connection events (with
// verbs: an ibv_cq, its ibv_comp_channel and an rdma_event_channel).
// Thread:   belongs to one thread at a time, except Wake(). Every handler is called from inside Poll().
class CompletionQueue {
 public:
  virtual ~CompletionQueue() = default;

  // Makes progress and collects up to `completions.size()` completions; returns how many. Never blocks. Calls
  // the handlers of connections and listeners that have events. If more completions wait than there is room
  // for, it may do nothing else. With no room at all, it polls connections and listeners.
  virtual size_t Poll(absl::Span<Completion> completions) = 0;

  // Arms the queue, polls it once more, and sleeps until Poll() may have something to do, Wake() was called
  // since the last wait, or CLOCK_MONOTONIC reaches `when_ns`; kNoEnd: no bound. May return early for no
  // reason. The caller need not call Poll() first. Another thread may call Poll() while this one waits. The
  // time
  // is absolute, so that a caller that waits for many answers need not read the clock for each.
  virtual void WaitUntil(int64_t when_ns) = 0;
  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  // The same with a timeout; absl::InfiniteDuration(): no bound.
  void Wait(absl::Duration timeout);

  // Ends the current or the next wait. From any thread; cheap when called again before that.
  virtual void Wake() = 0;
};

// The peer has disconnected, or its process has ended: its system said so, and the network did not fail. A
// detail of the status that ConnectionHandler::OnDisconnected() gets. (No fabric tells a program that
// disconnects from one that is killed.)
void SetPeersEnd(absl::Status& status);
bool IsPeersEnd(const absl::Status& status);

// Receives the events of one connection. Called from inside CompletionQueue::Poll().
class ConnectionHandler {
 public:
  virtual ~ConnectionHandler() = default;

  // The connection can carry traffic. `private_data`: for a requester, what the peer passed to Accept(); for
  // a responder, empty.
  virtual void OnEstablished(absl::string_view private_data) = 0;

  // For a responder: Accept() returned OK, but could not be carried out, and the peer has no answer yet.
  // Returns the private data with which the peer is rejected: at most kRejectPrivateDataMax bytes.
  // OnConnectFailed() follows, with the same status. May not destroy the queue pair.
  virtual std::string OnAcceptFailed(const absl::Status& /*why*/) { return {}; }

  // A fabric may offer a small SEND here, in place of completing a receive. It does so inside a Poll() that
  // has room for completions, and only if a posted receive could take the SEND. `message` is memory of the
  // fabric, which nothing changes until this returns.
  // True: the SEND is taken. It completes no receive; all stay posted. The peer's SEND has succeeded.
  // False: the SEND completes a receive, as if it had not been offered. This function has posted, withdrawn
  // and ended nothing then.
  // A Poll() inside which a SEND was taken returns no completions of receives: the next one does. So a caller
  // that takes no more SENDs gets no more of them in this Poll().
  // If the peer has posted a push behind the SEND in the same call, the fabric may offer the SEND when the
  // push has begun to come: then TakePush() finds it inside this function. If the SEND is taken and the push
  // is not, the push is dropped. If the SEND is not taken, this function has not taken the push.
  // SENDs keep their order: none is offered once an earlier one has completed a receive, until the Poll() has
  // ended that returns that completion. Nothing is promised of the order with other completions, nor which
  // of the posted receives a SEND completes.
  // This function may post, withdraw, grant, revoke, and disconnect, on any queue pair. After a disconnect
  // nothing more is offered. It may not poll, which a fabric may answer with a CHECK, and not destroy a queue
  // pair. After a fork() inside, the child is offered nothing more.
  virtual bool TakeSend(absl::Span<const uint8_t> /*message*/) { return false; }

  // Called instead of OnEstablished(). PermissionDenied: the peer rejected, with `private_data`. Unavailable
  // (`private_data` is empty): the port is closed, there is no route, or the peer does not answer; for a
  // responder: the requester disconnected before Accept() reached it. For a responder any other code, too:
  // the device could not do it; see OnAcceptFailed(). Unauthenticated (likewise): TLS: one side does not
  // believe the other, or only one side has credentials. The queue pair is in error.
  virtual void OnConnectFailed(const absl::Status& why, absl::string_view private_data) = 0;

  // The peer disconnected, died, or broke the fabric's protocol; `why` is Unavailable or DataLoss, and
  // carries the violation if there was one (ViolationOf()), or IsPeersEnd(). Every SEND that arrived before
  // was returned by an earlier Poll(), or offered and taken. The queue pair may still look healthy and flush
  // nothing until Disconnect() is called.
  virtual void OnDisconnected(const absl::Status& why) = 0;
};

// A peer's request to connect, not answered yet. The destructor rejects it with no private data.
// Thread: may be moved to the thread of another CompletionQueue and be accepted there.
class ConnectRequest {
 public:
  virtual ~ConnectRequest() = default;

  // What the peer passed to Connect(), perhaps padded with zeros.
  virtual absl::string_view private_data() const = 0;
  virtual SocketAddress peer_address() const = 0;

  // The address and port that the peer has connected to: those that it dialed, unless the network translates
  // addresses. Valid until it is accepted or rejected.
  virtual SocketAddress local_address() const = 0;

  // The number of READs (and atomics) that the peer lets each side have outstanding. 0: it allows none, so no
  // large message could pass. (Not every iWARP driver says what the peer allows. Then it is what this side's
  // device can do.)
  virtual uint32_t read_depth() const { return 1; }

  // Who the peer is, as TLS has found. Null: the listener has no credentials.
  virtual std::shared_ptr<const PeerIdentity> peer_identity() const { return nullptr; }

  // What the peer's QueuePair::ExportSecret() returns for the same label. FailedPrecondition: there is no
  // TLS, or it was accepted or rejected before.
  virtual absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label);

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

struct ListenOptions {
  // Each peer must complete a TLS handshake with a certificate before it becomes a ConnectRequest. Null:
  // plain text. Only where Fabric::carries_tls().
  std::shared_ptr<tls::Context> tls;
};

// Listens until it is destroyed.
class Listener {
 public:
  virtual ~Listener() = default;

  // The port is the real one, never 0.
  virtual SocketAddress address() const = 0;

  // OK, or why it listens on less than was asked for: on 0.0.0.0 instead of [::], because a device of this
  // machine has no IPv6. address() is that which it listens on.
  virtual absl::Status shortfall() const { return absl::OkStatus(); }
};

struct QueuePairOptions {
  // Send work requests posted and not completed (unsignaled: until a signaled one completes).
  uint32_t send_depth = 64;
  uint32_t receive_depth = 64;  // Receive work requests posted and not completed.
  // Outstanding READs and atomics: as requester (initiator_depth) and as responder (responder_resources).
  // Both sides get the minimum. A caller may post more: the fabric sends them when earlier ones are answered,
  // and what is posted behind them waits, too. `send_depth` bounds how many are posted.
  uint32_t read_depth = 16;
  // A SEND of the peer that finds no posted receive waits for one without a time limit, instead of RNR.
  // Everything that the peer has sent behind it waits as well, including acknowledgements and the answers to
  // READs. If the owner of the queue pair cannot post a receive, it ends the connection. Only where
  // Fabric::sends_can_wait().
  bool sends_wait = false;
  // The local address, and so the NIC, that Connect() uses; port 0: any. AF_UNSPEC: the route to the peer
  // decides.
  SocketAddress local_address;
  // Connect() authenticates both sides, and encrypts what crosses. The peer's certificate must be for
  // `tls_host`, the host that the address was made of, unless the credentials say otherwise. Null: neither.
  // Only where Fabric::carries_tls(). Accept() ignores both: the listener has done the handshake.
  std::shared_ptr<tls::Context> tls;
  std::string tls_host;
};

// A reliable connected queue pair (RC).
// Thread:   that of its CompletionQueue.
// Lifetime: destroy it after Disconnect() and after every posted work request has completed. If it is
//           destroyed earlier (because a flush does not complete), it no longer uses any memory when the
//           destructor returns, and its outstanding work requests never complete. Then the destructor may
//           wait for the device; otherwise it never does.
class QueuePair {
 public:
  virtual ~QueuePair() = default;

  virtual uint32_t qp_num() const = 0;

  // The number of READs and atomics that may be outstanding: the agreed read depth. Valid from
  // OnEstablished() on.
  virtual uint32_t read_depth() const = 0;

  // Valid from Connect() or Accept() on.
  virtual SocketAddress peer_address() const = 0;
  virtual SocketAddress local_address() const = 0;

  // Who the peer is, as TLS has found. Null: no TLS, or not established yet.
  virtual std::shared_ptr<const PeerIdentity> peer_identity() const { return nullptr; }

  // From OnEstablished() on: what only the two ends of this connection know, by its TLS. See
  // tls::Session::ExportSecret(). FailedPrecondition: it has no TLS.
  virtual absl::StatusOr<tls::Secret> ExportSecret(absl::string_view label);

  // Starts to connect; the handler is notified of the result. It has no useful timeout of its own (rdma_cm:
  // 102 s): call Disconnect() to give up. `private_data`: at most kConnectPrivateDataMax bytes.
  // InvalidArgument: that is too long, or `address` is of another family than
  // QueuePairOptions::local_address.
  virtual absl::Status Connect(const SocketAddress& address, absl::string_view private_data) = 0;

  // Answers `request`, which the caller may destroy then. After an error the caller can still reject it, so
  // that the peer gets the reason. OK means that the answer is on its way: what fails later, for example at a
  // device that has no queue pair left, is told to ConnectionHandler::OnAcceptFailed() and OnConnectFailed().
  // `private_data`: at most kAcceptPrivateDataMax bytes. InvalidArgument: that is too long, or `request` came
  // over a fabric of another kind.
  virtual absl::Status Accept(ConnectRequest& request, absl::string_view private_data) = 0;

  // A guess whether the peer runs on the same core as this thread. If so, the peer can run only when this
  // thread pauses, and posting early instead of in one batch gains nothing. Always false on a NIC.
  virtual bool PeerSharesCore() const = 0;

  // Posts in order, as one chain (one doorbell, one system call). Not before OnEstablished(), or, at the
  // accepting side, the first receive completion. With these errors nothing was posted. ResourceExhausted:
  // the send queue has no room. InvalidArgument: an sge is outside of its region, there are too many,
  // CheckAtomic() refuses an atomic, or takes_atomics() is false. FailedPrecondition: not connected, or
  // already in error. With any other error the device has failed: it may carry out the first of the work
  // requests, none of them completes, and the queue pair ends.
  virtual absl::Status PostSend(absl::Span<const SendWorkRequest> requests) = 0;

  // Posts one SEND of these bytes, and copies them, as IBV_SEND_INLINE does: when this returns, the memory is
  // the caller's again. It need not be registered. The SEND goes in order with all others, but waits for
  // RingDoorbell() or PostSend(), so that many share a doorbell. It takes no place in the send queue, and
  // never completes: a later completion proves it, and if it fails, the queue pair ends, and OnDisconnected()
  // says why. False: nothing was posted, because the fabric does not copy so many bytes, or cannot do so now:
  // use PostSend(), which reports errors.
  virtual bool PostInline(absl::Span<const uint8_t> /*message*/) { return false; }
  // Sends what PostInline() has posted. Without it, that is lost at Disconnect().
  virtual void RingDoorbell() {}

  // Posts in order; all or nothing; possible before connecting, too. ResourceExhausted, InvalidArgument,
  // FailedPrecondition: as for PostSend().
  virtual absl::Status PostReceive(absl::Span<const ReceiveWorkRequest> requests) = 0;

  // Withdraws the newest posted receives, at most `wr_ids.size()` of them, but none that a SEND has reached.
  // Writes their wr_ids, newest first, and returns how many there are. The caller owns their memory again,
  // and no completion follows. 0: there is none, the queue pair is in error, or the fabric cannot do this
  // (verbs cannot).
  virtual size_t WithdrawReceives(absl::Span<uint64_t> /*wr_ids*/) { return 0; }

  // The caller expects no traffic for a while, so the fabric may free what only traffic needs.
  virtual void Trim() {}

  // The peer has sent something of which no Poll() has returned a completion yet. False as well where the
  // fabric cannot say (verbs: only the completion queue, which many queue pairs share, knows it).
  virtual bool HasUnpolled() const { return false; }

  // What a peer may do with memory: one of these, or several joined with |.
  enum class Access : uint8_t {
    kRead = 1,    // READ each byte at least four times. A fabric in software refuses more.
    kWrite = 2,   // WRITE.
    kAtomic = 4,  // Atomics. The range begins at a multiple of 8. Only where Fabric::atomics() is not kNone.
    kReadRepeatedly = 8 | kRead,  // READ, as often as the peer wants.
  };

  // Lets this one peer, over this one queue pair, access the range, which is inside one region. The
  // grant is valid for the peer from a SEND that is posted later, until it is revoked, also after the end of
  // the queue pair, or until that is destroyed. With verbs it is a memory window of type 2, so this call pins
  // and maps nothing. On a device without such windows peers on other queue pairs of the process could use
  // the rkey, if they guessed it, and a program may choose less than that (GrantKind in verbs/options.h).
  // InvalidArgument: the range is not in a region, or CheckGrant() refuses it. ResourceExhausted: too
  // many grants at once (at least `send_depth` are possible). FailedPrecondition: not connected yet, or
  // already in error (a later poll notifies the handler).
  virtual absl::StatusOr<Granted> Grant(const Sge& range, Access access) = 0;

  // Whether atomics may be posted here: the own device and, as far as the fabric knows, the peer's can do
  // them. Valid from OnEstablished() on. What they are atomic with is the peer's Fabric::atomics(), which
  // only the peer knows. Verbs do not know the peer's device: if that has none, an atomic fails
  // (kRemoteInvalidRequest, or kRemoteAccessError), and ends the queue pair.
  virtual bool takes_atomics() const { return false; }

  // Revokes a grant. The fabric owns the memory until the completion with `wr_id`; after it the peer can no
  // longer touch the memory. That completion has no order with those of the send queue, and takes no place
  // there. If the peer is using the memory at that moment, the fabric may put the queue pair in error. (With
  // verbs this is a work request, LOCAL_INV: until it completes, the peer may still have access.)
  virtual void Revoke(uint32_t rkey, uint64_t wr_id) = 0;

  // READs into this range of memory follow, each into a part of it. Where the device needs a registration of
  // what is READ into (verbs over iWARP), the READs share it then, and the fabric owns the range until
  // CloseSink(), or until the queue pair is in error and every READ has completed. Elsewhere it does nothing.
  // READs are possible without it, too.
  virtual void OpenSink(uint8_t* /*address*/, uint64_t /*length_bytes*/) {}
  // No READ into the range that OpenSink() was given follows, and none is outstanding. Does nothing if there
  // is no such range. False: the peer may still write there, because the device does not take that back. Then
  // the queue pair has ended, and the range is the fabric's until the queue pair is destroyed.
  virtual bool CloseSink(const uint8_t* /*address*/) { return true; }

  // The most bytes that one kPush may carry; 0: this fabric has no pushes, or the peer does not take them.
  // Valid from OnEstablished() on. The caller posts a push right behind the SEND that names its memory. If
  // the peer takes the push at once (TakePush()), it saves the round trip of a READ. Otherwise the peer's
  // fabric drops the bytes, and the peer READs them.
  virtual uint32_t push_bytes_max() const { return 0; }

  // Replaces a READ of `remote_address` and `rkey` into `sink`. True if the peer has pushed exactly that
  // range, and the last Poll() has found the push, or has returned the SEND before it, or this Poll() offers
  // that SEND (ConnectionHandler::TakeSend()). The fabric owns the
  // sink until a completion with `wr_id` and opcode kRead, which has no order with other completions and
  // takes no place in the send queue. The next Poll() may drop the push. Several pushes may be available at
  // once. If the peer posted a push and its SEND in one call, both become available together.
  virtual bool TakePush(uint64_t /*wr_id*/, const Sge& /*sink*/, uint64_t /*remote_address*/,
                        uint32_t /*rkey*/) {
    return false;
  }

  // Inside ConnectionHandler::TakeSend(): the peer has pushed something behind the SEND, and it can be taken.
  virtual bool offers_push() const { return false; }

  // How many bytes of answers to the peer's READs and atomics this side has sent, ever; a byte that is READ
  // again counts again. nullopt: the fabric does not see the peer's READs (verbs: the NIC answers them).
  // Valid from OnEstablished() on.
  virtual std::optional<uint64_t> answered_read_bytes() const { return std::nullopt; }

  // How far large transfers have come, to be compared with earlier looks; valid from OnEstablished() on.
  // `sent` exceeds all that it has been when the peer's host acknowledges a byte of an answer to the peer's
  // READs, of a push, or of what this side has sent before one of these; `arrived` changes when bytes come
  // for a READ of this side, or of a push that was taken. What is sent behind the last answer or push, and
  // what comes besides, changes neither. It takes a system call. All 0: the fabric sees nothing of it (verbs:
  // the NICs do it all).
  struct Progress {
    int64_t sent = 0;
    uint64_t arrived = 0;
  };
  virtual Progress progress() const { return {}; }

  // Why the queue pair is in error, where no completion says so: a SEND of PostInline() has failed. Known
  // before OnDisconnected(), which comes behind what the end flushes, and after Disconnect(). OK: it is not
  // in error, a completion says why, or the fabric does not know it yet.
  virtual absl::Status why_ended() const { return absl::OkStatus(); }

  // Ends the connection, or gives up connecting. Later polls return everything posted as flushed. Idempotent.
  // The fabric does not call the handler any more.
  virtual void Disconnect() = 0;

  // After Disconnect(), when what is outstanding does not complete. True: all of it completes, flushed, as
  // soon as the device does not touch its memory any more, and nothing here waits for the device. False: only
  // the destructor ends it.
  virtual bool ForceFlush() { return false; }

  // Disconnects, and sends `why` to the peer if the fabric can do so without waiting: once, and never behind
  // anything that the peer has not read. TCP does. Verbs do not: the private data of a disconnect does not
  // arrive on every device (rdma_cm has no parameter for it).
  virtual void DisconnectBecause(absl::string_view /*why*/) { Disconnect(); }
};

constexpr QueuePair::Access operator|(QueuePair::Access one, QueuePair::Access other) {
  return static_cast<QueuePair::Access>(static_cast<uint8_t>(one) | static_cast<uint8_t>(other));
}
// Whether `access` has all of `right`.
constexpr bool Allows(QueuePair::Access access, QueuePair::Access right) {
  return (access | right) == access;
}

// The check of QueuePair::Grant() that every fabric makes. InvalidArgument: `access` is none that there is;
// or it has kAtomic, and the range begins at no multiple of 8, or `atomics` is kNone.
absl::Status CheckGrant(const Sge& range, QueuePair::Access access, Atomics atomics);

// Likewise for an atomic given to QueuePair::PostSend(). InvalidArgument: it has another sge than one of 8
// bytes, or its remote address is no multiple of 8.
absl::Status CheckAtomic(const SendWorkRequest& request);

// One device.
// Thread:   any.
// Lifetime: outlives everything made from it.
// Failure:  a device may fail, or be removed, and return (a reset). Its connections end, and connecting fails
//           with Unavailable meanwhile. For callers memory stays registered, and listeners listen again when
//           the device has returned.
class Fabric {
 public:
  virtual ~Fabric() = default;

  // The scheme of the addresses it serves: "tcp", "rdma".
  virtual absl::string_view scheme() const = 0;

  // The NUMA node of the device, whose memory it reaches fastest; -1: none, or unknown.
  virtual int numa_node() const { return -1; }

  // Register() pins the pages, and takes commands of a device. So memory is best registered in larger
  // regions, and kept.
  virtual bool pins_memory() const { return false; }

  // Entries of SendWorkRequest::sges that a SEND or WRITE may have here: 1 to kSgeMax. (A READ may have
  // fewer.)
  virtual size_t sge_max() const { return kSgeMax; }

  // Whether QueuePairOptions::sends_wait is possible. With verbs it is not: a SEND without a receive costs
  // retries, and while one waits, the sender can send nothing else.
  virtual bool sends_can_wait() const { return false; }

  // Whether a SEND may end a grant of the peer's on the same queue pair, and whether a peer's SEND may end
  // one of this side's. From the completion of its receive on, the grant is of no use to the peer, and
  // Revoke(), which the side that has granted calls as for any other, completes without asking the device. A
  // SEND with an rkey that the peer has not granted on the queue pair fails (kRemoteAccessError, or
  // kRemoteInvalidRequest), and ends it. With verbs: SEND_WITH_INV, where grants are memory windows; only
  // what the own device has invalidated counts as ended.
  virtual bool sends_end_grants() const { return false; }

  // What atomics of peers on memory of this side are atomic with. WRITEs are atomic with none of them.
  virtual Atomics atomics() const { return Atomics::kNone; }

  // Whether QueuePairOptions::tls and ListenOptions are possible.
  virtual bool carries_tls() const { return false; }

  // Whether a listener takes its port from TCP, so that no program can listen on that port over TCP: verbs
  // over iWARP, whose connections are TCP's on the wire. Connections to such a fabric are made over such a
  // fabric.
  virtual bool takes_ports_of_tcp() const { return false; }

  // Registers [address, address + length_bytes) for local use. Slow: 16 us + 0.06 ns/B on mlx5 (the model in
  // UCX's ib_md.c), so slabs are registered, not messages.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(uint8_t* address, size_t length_bytes) = 0;

  // The same for memory of any kind, for the local sges of READs and WRITEs only: nothing of it is granted
  // (QueuePair::Grant()). A dma-buf's file descriptor is duplicated, so the caller may close its own.
  // InvalidArgument: CheckRange() refuses it. Unimplemented: the fabric or the device cannot use
  // this kind; the text says why.
  // By default: what a fabric in software can do. It copies with the processor, and pins nothing.
  virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterRange(const MemoryRange& range);

  // `depth`: most completions that can wait, over all queue pairs on it.
  virtual absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t depth) = 0;

  // `completion_queue` and `handler` outlive the result. Call it on the thread of `completion_queue`.
  // InvalidArgument: another fabric made `completion_queue`, or the depths are impossible.
  virtual absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(CompletionQueue& completion_queue,
                                                                     const QueuePairOptions& options,
                                                                     ConnectionHandler& handler) = 0;

  // Port 0: any free one. `handler` receives requests on the thread of `completion_queue`. AlreadyExists: the
  // address is in use. PermissionDenied, InvalidArgument: this process cannot listen on the address, or
  // `options` are not possible.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           ListenHandler& handler,
                                                           const ListenOptions& options = {}) = 0;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_FABRIC_H_
