#ifndef HAWSER_TRANSPORT_CONNECTION_OUTBOUND_H_
#define HAWSER_TRANSPORT_CONNECTION_OUTBOUND_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "hawser/transport/connection/port.h"
#include "hawser/transport/connection/send_queue.h"
#include "hawser/transport/sharing/read_admission.h"
#include "hawser/transport/sharing/response_watch.h"
#include "hawser/transport/wire/message.h"
#include "hawser/transport/wire/wire.h"

// One message on its way out: how it is laid out, what of it is granted, and when its memory is free again.
namespace hawser::transport {

class Inbound;
class Outbounds;

// A message that was posted, as one SEND. It owns the message, whose memory moves round this ring:
//
//   builder -> Outbounds::Post() -> Release() -> SEND completed and grants revoked ->
//   its pool, or the Taker of the message
//
// A slot holds a pointer to it from Post() to Release(), while the peer may still READ the message's memory,
// or the request may have to be sent again. From Release() on only the fabric keeps it: until its SEND, or a
// later one, has completed, and the last of its grants is revoked. A small message needs none of this: the
// fabric has copied it when Post() returns.
// Thread:   on the poller.
// Lifetime: a part of its Outbounds. Not to be used after Release() or ReleaseAtFailure().
class Outbound final : SendOwner {
 public:
  // The connection is being destroyed, and no Taker is left.
  ~Outbound() {
    if (message_ != nullptr) message_->ReturnTo(nullptr);
  }

  enum class State : uint8_t {
    kIdle,              // Free for a message.
    kPosted,            // A slot holds it; the SEND has not completed.
    kCompleted,         // A slot holds it; the SEND has completed.
    kReleased,          // No slot holds it; the SEND has not completed.
    kReleasedRevoking,  // Likewise, and grants are being revoked.
    kRevoking,          // The SEND has completed; grants are being revoked.
    kEnding,  // The connection has failed: all is kept until the fabric has done with it. Grants may be being
              // revoked.
    kImpossible,
  };
  enum class Event : uint8_t { kPost, kComplete, kRelease, kRevoke, kRevoked, kFail, kFabricGone, kCopied };
  // kRelease: without grants; kRevoke: with some, which are being revoked from here on; kRevoked: the last of
  // them is; kFail: the connection has failed, and its slot needs it no more, or its SEND comes back.
  // kImpossible: only a bug of ours could cause this event here.
  static State Next(State state, Event event);

  // The slot needs it no more.
  void Release();
  // Likewise, and the connection has failed, or has closed.
  void ReleaseAtFailure();

  // `taker` gets the message, rather than its pool, when it is free.
  void ReturnTo(OutgoingMessage::Taker* taker) { message_->ReturnTo(taker); }
  // The fabric still uses its memory.
  bool is_sent_from() const { return state_ == State::kPosted; }
  // The peer may READ some of it.
  bool has_grants() const { return !rkeys_.empty(); }
  // Some of it is in the memory of `request`.
  bool IsFrom(const Inbound& request) const;
  // The call of this request has ended, and the peer has not answered it. Until its release.
  void OnGivenUp();
  // Until the memory of the message is free.
  void Keep(HeldByHost request_memory) { request_memory_ = std::move(request_memory); }

 private:
  friend class Outbounds;

  Outbound(Outbounds& owner, uint32_t index) : owner_(owner), index_(index) {}
  // SendOwner
  void OnSendCompleted() override;
  void Move(Event event);
  void Revoke();
  void RevokeGrants();
  // It does not count any more. Returns what has counted.
  ResponseAccount::Bytes TakeCounted();

  Outbounds& owner_;
  const uint32_t index_;
  State state_ = State::kIdle;
  uint32_t grants_left_ = 0;  // That are being revoked.
  Outbound* next_free_ = nullptr;
  OutgoingMessagePtr message_;
  absl::InlinedVector<uint32_t, 2> rkeys_;
  // Against the peer's host, from Post() to Release(). `granted` of a request: from OnGivenUp() on.
  ResponseAccount::Bytes counted_;
  bool counts_ = false;
  uint64_t granted_bytes_ = 0;  // While it counts.
  HeldByHost request_memory_;   // Of a response that is sent out of the memory of its request.
};

// The messages of one connection that are on their way out.
// Thread:   on the poller.
class Outbounds final : ResponseAccount::Owner {
 public:
  Outbounds(Port& port, SendQueue& sends)
      : port_(port), sends_(sends), responses_(port.poller().response_watch(), *this) {}

  // Queues `message` as one SEND: whole, if it fits the agreed receive buffer; otherwise its large segments
  // are granted to the peer, which READs them from where they were built, and the small ones go along.
  // The caller sets kind, slot, generation and timeout of `header`. The result has taken `message`, and is
  // valid until its release. If `why` is not OK, nothing was queued, and the result is null: `message` is
  // untouched. But if some of it was granted before the rest could not be, the result has taken it
  // nevertheless, keeps it until that is revoked, and is valid until the next Poll() only. `why`:
  //   InvalidArgument:   larger than the peer takes or than this side's own limit, or too many segments
  //   ResourceExhausted: the message could not be built in registered memory, nothing more can be granted, or
  //                      it counts, and is beyond what the peer's host may hold
  //   anything else:     the connection has just failed, and its handlers were called
  // `ends_rkey`: a grant of the peer's that the SEND ends, or 0.
  Outbound* Post(Header& header, OutgoingMessagePtr& message, absl::Status& why, uint32_t ends_rkey = 0);
  // The same for the usual message (usual_out.cc). True: the fabric has copied it, and it stays the caller's.
  // False: it is for Post().
  bool PostUsual(Header& header, OutgoingMessage& message);
  // For what was copied and has to have a Taker, or to wait for the end of a connection that fails.
  Outbound& Keep(OutgoingMessagePtr message);

  // The completion of a revocation whose wr_id has `index`.
  void OnRevoked(uint32_t index);

  // The fabric uses no memory any more: what was released at a failure is free.
  void OnFabricReleased();

  // The large messages that the peer holds, and that count.
  const ResponseAccount& responses() const { return responses_; }

  // Some revocation has not completed.
  bool revokes() const { return revoking_ != 0; }

 private:
  friend class Outbound;

  // Of a message that this side sends and the peer takes.
  uint64_t bytes_max() const {
    return std::min(port_.options().message_bytes_max, port_.peer_message_bytes_max());
  }
  Outbound& New();
  void Grow();
  void Free(Outbound& outbound) { outbound.next_free_ = std::exchange(free_, &outbound); }
  // False: the connection has failed.
  bool QueueWhole(Outbound& outbound, size_t prefix_bytes, uint32_t ends_rkey);
  void CountWhole(const OutgoingMessage& message) {
    Poller& poller = port_.poller();
    poller.sent().whole.Add();
    poller.sent_bytes().Add(message.body_bytes());
  }
  // A message that is not the usual one, or cannot be sent.
  absl::Status QueueOther(const Header& header, Outbound& outbound, size_t prefix_bytes, uint32_t ends_rkey);
  absl::Status QueueParts(const Header& header, Outbound& outbound, size_t prefix_bytes,
                          size_t send_bytes_max, uint32_t ends_rkey);
  // Which limit `message` exceeds.
  absl::Status TooLarge(const Header& header, const OutgoingMessage& message) const;
  absl::Status NotGranted(size_t remote_segments, const absl::Status& why) const;

  // ResponseAccount::Owner
  PeerHost peer_host() const override { return PeerHost(port_.peer_address()); }
  std::optional<uint64_t> answered_read_bytes() const override {
    return port_.queue_pair().answered_read_bytes();
  }
  uint64_t CountHeld() override;
  void EndForMemory() override;

  Port& port_;
  SendQueue& sends_;
  ResponseAccount responses_;  // Counts until their memory is free.
  std::vector<std::unique_ptr<Outbound>> all_;
  Outbound* free_ = nullptr;  // The last that became free comes first: its memory is warm.
  uint32_t revoking_ = 0;     // Messages of which grants are being revoked.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_OUTBOUND_H_
