#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SEND_QUEUE_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SEND_QUEUE_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/copied_sends.h"
#include "hawser/transport/fabric/verbs/endpoint.h"
#include "hawser/transport/fabric/verbs/grants.h"
#include "hawser/transport/fabric/verbs/memory.h"
#include "hawser/transport/fabric/verbs/options.h"
#include "hawser/transport/fabric/verbs/send_ring.h"
#include "hawser/transport/fabric/verbs/sinks.h"

namespace hawser::fabric {

// The send queue of one queue pair: the SENDs, READs and WRITEs of the caller, and before them the work
// requests of grants, which they may name. It posts them, and says in which order the caller's complete.
//
//   PostSend() --> waiting_, while it has no place --> sends_: the device has it --> its completion
//                                                           |                            ^
//                        one of the fabric's own behind it has completed --> unreported_ ----'
//
// It has no place while one of a grant before it, a BIND_MW, has none, or while copied SENDs hold it
// (VerbsCopiedSends).
// Over iWARP completions may come out of order; each waits in sends_ for those before it.
// Thread:   that of the queue pair.
// Failure:  it reports to the VerbsEndpoint what ends the queue pair. Internal from Post(): it has ended.
class VerbsSendQueue {
 public:
  // `depth`: of the caller's. The queue has rings::SendEntries().
  VerbsSendQueue(VerbsEndpoint& endpoint, const VerbsMemory& memory, const VerbsFabricOptions& fabric,
                 uint32_t depth, GrantKind grants);

  uint32_t depth() const { return sends_.depth(); }
  bool empty() const { return sends_.empty(); }
  // What was posted waits for a place.
  bool waits() const { return !waiting_.empty(); }
  VerbsGrants& grants() { return grants_; }
  VerbsSinks& sinks() { return sinks_; }
  // The entries of the last chain: for the chain of another queue, whose next one overwrites them.
  std::vector<ibv_sge>& chain_sges() { return chain_sges_; }
  // What the device has granted.
  void SetInlineBytes(uint32_t inline_bytes) { inline_bytes_ = inline_bytes; }

  // As QueuePair::PostSend(), while the queue pair can send.
  absl::Status Post(ibv_qp* qp, absl::Span<const SendWorkRequest> requests);
  // As QueuePair::PostInline(), while the queue pair can send.
  bool PostInline(absl::Span<const uint8_t> message);
  // Posts what PostInline() has taken.
  void RingDoorbell(ibv_qp* qp);
  // Posts what waits for a place, as far as there are some now.
  void PostQueued(ibv_qp* qp);

  // As VerbsSource::OnCompletion().
  bool OnCompletion(const ibv_wc& wc, uint32_t number, Completion& out);

  // After Disconnect(), in kError: posts a last signaled work request if nothing else shows when all have
  // ended. `qp`: null if there is none. False: it could not be posted.
  bool PostDrain(ibv_qp* qp);
  // Completes what the device will not complete any more.
  void FlushOutstanding();

 private:
  // A work request that Post() has taken, and that has no place yet. Not over iWARP, so none has a sink.
  struct Waiting {
    explicit Waiting(const SendWorkRequest& request);
    SendWorkRequest ToRequest() const;

    SendWorkRequest request;  // Without its sges.
    size_t sge_count;
    Sge sges[kSgeMax];
  };
  // What a completion needs to know of a work request.
  struct Unreported {
    uint64_t wr_id;
    Opcode opcode;
  };

  // For Post().
  uint32_t room() const {
    return sends_.room() - static_cast<uint32_t>(waiting_.size() + unreported_.size());
  }
  absl::Status BeginSinks(absl::Span<const SendWorkRequest> requests);
  bool EndSink(uint32_t number);
  absl::Status PostChain(ibv_qp* qp, absl::Span<const SendWorkRequest> requests);
  VerbsSinks::Begun SinkOf(size_t request) const;
  // All fill in `to`, but for its wr_id and next, and return its entry.
  VerbsSendRing::Entry Translate(const SendWorkRequest& from, const VerbsSinks::Begun& sink, ibv_send_wr& to);
  VerbsSendRing::Entry TranslateGrant(size_t index, ibv_send_wr& to);
  VerbsSendRing::Entry TranslateCopied(size_t index, ibv_send_wr& to);
  void OnFailed(const VerbsSendRing::Entry& entry, CompletionStatus status);
  void OnUnorderedCompletion(const ibv_wc& wc, uint32_t number);
  void DeliverInOrder();
  void FlushUnreported();
  void FlushUnreportedAndWaiting();

  VerbsEndpoint& endpoint_;
  VerbsDevice& device_;
  const VerbsMemory& memory_;
  const uint32_t token_;
  const bool all_signaled_;  // Over iWARP each send completes, and is put in order here.
  bool keeps_sink_ = false;  // The device keeps what a READ has filled writable, so that READ and those
                             // behind it wait.
  uint32_t inline_bytes_ = 0;
  uint32_t unsignaled_grants_ = 0;  // Work requests of grants, since the last signaled work request.
  uint32_t unsignaled_copied_ = 0;  // Copied SENDs, likewise.
  VerbsSendRing sends_;
  VerbsCopiedSends copied_;
  VerbsGrants grants_;
  std::vector<Waiting> waiting_;  // In order, behind everything in `sends_`.
  // Unsignaled work requests of the caller that have left `sends_`, because one of the fabric's own behind
  // them has completed, of which the caller gets no completion. The next one of the caller's own covers them,
  // too.
  std::vector<Unreported> unreported_;
  VerbsSinks sinks_;

  // A chain while it is built; kept so that posting allocates nothing.
  std::vector<ibv_send_wr> chain_;
  std::vector<ibv_sge> chain_sges_;
  std::vector<VerbsSinks::Begun> chain_sinks_;  // For each request of Post(), or empty.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SEND_QUEUE_H_
