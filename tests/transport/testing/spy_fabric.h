#ifndef HAWSER_TESTS_TRANSPORT_TESTING_SPY_FABRIC_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_SPY_FABRIC_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// A fabric that counts the operations on another one, and can hold back its completions.
// Thread:   as the other fabric, but with a single completion queue.
class SpyFabric final : public fabric::Fabric {
 public:
  // The counts of one queue pair, also after its end.
  struct Counts {
    size_t number = 0;   // As of counts(number).
    uint64_t sends = 0;  // Work requests posted, of each kind.
    uint64_t pushes = 0;
    uint64_t taken_pushes = 0;
    uint64_t signaled_sends = 0;
    // SENDs with a remote address, which only READs and pushes have, or an rkey on a fabric that has none
    // there.
    uint64_t sends_that_name_memory = 0;
    uint64_t sends_that_end_grants = 0;
    uint64_t reads = 0;
    uint64_t signaled_reads = 0;
    uint64_t read_bytes = 0;
    size_t send_sges_most = 0;  // Of one SEND.
    uint64_t send_posts = 0;    // Calls.
    uint64_t inline_sends = 0;  // SENDs posted by PostInline(), and sent.
    uint64_t doorbells = 0;     // Calls of RingDoorbell().
    int64_t reads_outstanding = 0;
    int64_t reads_outstanding_max = 0;
    int64_t reads_held = 0;       // None of these: completed, and held back because of `hold_reads`.
    int64_t receives_posted = 0;  // Posted and not completed.
    int64_t receives_posted_min = INT64_MAX;
    uint64_t receive_posts = 0;  // Calls.
    uint64_t taken_sends = 0;    // SENDs that the connection took inside Poll().
    uint64_t trims = 0;          // Calls of Trim().
    int64_t grants = 0;          // Granted and not revoked.
    int64_t revocations = 0;     // Begun and not completed.
    int64_t grants_max = 0;
    uint64_t sinks_opened = 0;
    int64_t open_sinks = 0;  // Opened and not closed.
    uint32_t receive_depth = 0;
    bool in_error = false;  // A completion said so. Good ones may follow: each queue is flushed by itself.

    // A test sets these. With `hold_reads` only the next `reads_let_through` READs of this queue pair
    // complete, as if the peer answered no others. An error of the queue pair delivers what was held.
    bool hold_reads = false;
    bool hold_taken_pushes = true;  // Holds them like READs, and behind READs.
    uint64_t reads_let_through = 0;
    bool keeps_sinks = false;  // CloseSink() says false. The test ends the queue pair.
    bool hides_reads = false;  // What the peer READs of this queue pair is not seen, as with verbs.
    fabric::QueuePair::Progress more_progress;  // Added to that of the other fabric.
  };

  explicit SpyFabric(std::shared_ptr<fabric::Fabric> real) : real_(std::move(real)) {}

  // Queue pairs are numbered in the order of their creation.
  const Counts& counts(size_t i) const { return *counts_.at(i); }
  Counts& counts(size_t i) { return *counts_.at(i); }
  size_t queue_pairs() const { return counts_.size(); }
  uint64_t registrations() const { return registrations_; }

  // Holds back the good completions of SENDs, as if the peer's NIC did not acknowledge them, until this is
  // called with false or the queue pair is in error.
  void KeepBackSendCompletions(bool keep) { KeepBack(keep, fabric::Opcode::kSend); }
  // The same for READs, and what was posted after them.
  void KeepBackReadCompletions(bool keep) { KeepBack(keep, fabric::Opcode::kRead); }
  // The same for revocations.
  void KeepBackRevocations(bool keep) { KeepBack(keep, fabric::Opcode::kRevoke); }

  // With true, posts to send queues fail, with this code.
  void FailPosts(bool fail, absl::StatusCode code = absl::StatusCode::kInternal) {
    fail_posts_ = fail;
    fail_posts_code_ = code;
  }
  // Holds back flushed completions, as a stuck device or driver does, until this is called with false. If a
  // queue pair is destroyed, its completions are dropped.
  void KeepBackFlushes(bool keep) { keep_back_flushes_ = keep; }
  // Queue pairs that have not been destroyed.
  size_t live_queue_pairs() const { return live_.size(); }
  // A device has yet to say that it has revoked something.
  bool revokes() const;

  // The result of QueuePair::PeerSharesCore(). Initially false.
  void SetPeersShareCore(bool share) { peers_share_core_ = share; }

  // The result of QueuePair::HasUnpolled(). Initially that of the other fabric.
  void SayUnpolled(bool has_unpolled) { has_unpolled_ = has_unpolled; }

  // From now on queue pairs push, and take pushes, if the other fabric does. Initially they do not, as with
  // verbs.
  void LetPush() { pushes_ = true; }

  // From now on queue pairs post inline, if the other fabric does. Initially they do not, as with a NIC
  // without inline data.
  void LetPostInline() { posts_inline_ = true; }

  // With false no SEND is offered to its connection, as with verbs. Initially all are that the other fabric
  // offers.
  void OfferSends(bool offer) { offers_sends_ = offer; }

  // What listeners say that are made from now on: see fabric::Listener::shortfall().
  void SetShortfall(absl::Status shortfall) { shortfall_ = std::move(shortfall); }

  // From now on no handler is told that its connection is established, as if the peer had not finished the
  // handshake.
  void LoseEstablished() { loses_established_ = true; }

  // The most grants of one queue pair at once; a NIC may have few.
  void LimitGrants(int64_t grants_max) { grants_max_ = grants_max; }

  absl::string_view scheme() const override { return real_->scheme(); }
  bool pins_memory() const override { return real_->pins_memory(); }
  bool carries_tls() const override { return real_->carries_tls(); }
  bool sends_can_wait() const override { return no_credits_ || (sends_may_wait_ && real_->sends_can_wait()); }
  // For the side that sends requests: it neither offers nor accepts credits (kFeatureCredits), so each slot
  // has its receive.
  void OfferNoCredits() { no_credits_ = true; }
  // Applies to queue pairs that are created later. With false each slot has its receive at any time, as with
  // verbs.
  void LetSendsWait(bool let) { sends_may_wait_ = let; }
  bool sends_end_grants() const override { return real_->sends_end_grants(); }
  size_t sge_max() const override { return sge_max_.value_or(real_->sge_max()); }
  fabric::Atomics atomics() const override { return real_->atomics(); }
  // As a device of which a send has at most so many. A SEND of more fails as it does there.
  void SetSgeMax(size_t sge_max) { sge_max_ = sge_max; }
  int numa_node() const override { return numa_node_.value_or(real_->numa_node()); }
  void SetNumaNode(int node) { numa_node_ = node; }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(uint8_t* address,
                                                                 size_t length_bytes) override {
    ++registrations_;
    return real_->Register(address, length_bytes);
  }
  absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> CreateCompletionQueue(uint32_t depth) override;
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> CreateQueuePair(
      fabric::CompletionQueue& completion_queue, const fabric::QueuePairOptions& options,
      fabric::ConnectionHandler& handler) override;
  absl::StatusOr<std::unique_ptr<fabric::Listener>> Listen(fabric::CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           fabric::ListenHandler& handler,
                                                           const fabric::ListenOptions& options) override;

 private:
  // Of a queue pair that was not destroyed.
  Counts* CountsOf(uint32_t qp_num) const;
  bool IsLive(const Counts& counts) const;
  void KeepBack(bool keep, fabric::Opcode opcode) {
    keep_back_ = keep ? std::optional(opcode) : std::nullopt;
  }

  class SpyCompletionQueue;
  class SpyHandler;
  class SpyQueuePair;

  const std::shared_ptr<fabric::Fabric> real_;
  std::vector<std::unique_ptr<Counts>> counts_;
  std::vector<SpyQueuePair*> live_;  // Searched by number, which a NIC assigns only when connecting.
  std::map<uint64_t, bool> reads_;   // The wr_ids of READs that are outstanding.
  uint64_t registrations_ = 0;
  std::optional<fabric::Opcode> keep_back_;
  bool fail_posts_ = false;
  absl::StatusCode fail_posts_code_ = absl::StatusCode::kInternal;
  bool keep_back_flushes_ = false;
  bool peers_share_core_ = false;
  std::optional<bool> has_unpolled_;
  bool pushes_ = false;
  bool posts_inline_ = false;
  bool offers_sends_ = true;
  bool loses_established_ = false;
  bool sends_may_wait_ = true;
  bool no_credits_ = false;
  std::optional<int> numa_node_;
  std::optional<size_t> sge_max_;
  absl::Status shortfall_;
  int64_t grants_max_ = INT64_MAX;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_SPY_FABRIC_H_
