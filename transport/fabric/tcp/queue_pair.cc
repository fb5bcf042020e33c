#include "hawser/transport/fabric/tcp/queue_pair.h"

#include <sched.h>
#include <sys/socket.h>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/tcp/check_send.h"

namespace hawser::fabric {

TcpQueuePair::TcpQueuePair(TcpCompletionQueue& completion_queue, const RegionTable& regions, uint32_t qp_num,
                           const QueuePairOptions& options, ConnectionHandler& handler)
    : regions_(regions),
      traffic_(completion_queue, *this, handler, qp_num, options),
      local_address_(options.local_address) {
  if (options.tls != nullptr) dialing_ = std::make_unique<Dialing>(options.tls, options.tls_host);
  completion_queue.Register(*this);
}

TcpQueuePair::~TcpQueuePair() {
  traffic_.CloseSocket();
  completion_queue().UnregisterQueuePair(*this);
}

// --- Posting
// ---------------------------------------------------------------------------------------------------------

absl::Status TcpQueuePair::PostSend(absl::Span<const SendWorkRequest> requests) {
  const State state = life().state();
  if ((state != State::kEstablished && state != State::kRefusing && !life().ends_soon()) ||
      completion_queue().in_forked_child()) {
    return NotUsable("PostSend");
  }
  TcpSendQueue& send_queue = traffic_.send_queue();
  if (requests.size() > send_queue.room()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "PostSend to ", life().Peer(), ": ", requests.size(), " work requests, but the send queue of ",
        send_queue.depth(), " has room for ", send_queue.room(),
        ": wait for completions, and signal one request in every queue's length at least"));
  }
  traffic_.NumberCopied();
  send_queue.Reserve(static_cast<uint32_t>(requests.size()));
  for (uint32_t i = 0; i < requests.size(); ++i) {
    const SendWorkRequest& request = requests[i];
    if (request.opcode == Opcode::kSend && request.sges.size() == 1 &&
        request.sges[0].length <= kMessageBytesMax && regions_.Contains(request.sges[0])) [[likely]] {
      send_queue.Place(i, request, request.sges[0].length);
      continue;
    }
    uint32_t length_bytes;
    const SendLimits limits = {push_bytes_max(), send_queue.read_depth(), takes_atomics()};
    if (absl::Status status = CheckSend(request, regions_, limits, life().peer_address(), &length_bytes);
        !status.ok()) {
      return status;
    }
    send_queue.Place(i, request, length_bytes);
    if (IsAtomic(request.opcode)) send_queue.PlaceOperands(i, request);
    if (request.opcode == Opcode::kPush && i > 0 && requests[i - 1].opcode == Opcode::kSend) {
      send_queue.MarkPushFollows(i - 1);
    }
  }
  send_queue.Post(static_cast<uint32_t>(requests.size()));
  traffic_.OnSendPosted();
  return absl::OkStatus();
}

// SO_INCOMING_CPU is the core that received the peer's last packet. Over loopback the peer sent it on that
// core.
bool TcpQueuePair::PeerSharesCore() const {
  int core = -1;
  socklen_t length_bytes = sizeof(core);
  return traffic_.stream().is_open() &&
         getsockopt(traffic_.stream().fd(), SOL_SOCKET, SO_INCOMING_CPU, &core, &length_bytes) == 0 &&
         core == sched_getcpu();
}

absl::Status TcpQueuePair::PostReceive(absl::Span<const ReceiveWorkRequest> requests) {
  if (life().state() == State::kError && !life().ends_soon()) return NotUsable("PostReceive");
  TcpReceiveQueue& receive_queue = traffic_.receive_queue();
  if (requests.size() > receive_queue.room()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("PostReceive: ", requests.size(), " work requests, but the receive queue of ",
                     receive_queue.depth(), " has room for ", receive_queue.room()));
  }
  receive_queue.Reserve(static_cast<uint32_t>(requests.size()));
  for (uint32_t i = 0; i < requests.size(); ++i) {
    if (!regions_.Contains(requests[i].buffer)) return regions_.Refusal(requests[i].buffer);
    receive_queue.Place(i, requests[i]);
  }
  receive_queue.Post(static_cast<uint32_t>(requests.size()));
  traffic_.OnReceivePosted();
  return absl::OkStatus();
}

size_t TcpQueuePair::WithdrawReceives(absl::Span<uint64_t> wr_ids) {
  if (life().state() == State::kError) return 0;  // Each is about to complete as flushed.
  return traffic_.receive_queue().Withdraw(wr_ids, traffic_.IsReceiving());
}

void TcpQueuePair::Trim() {
  if (life().state() == State::kError) return;
  traffic_.receive_queue().Trim();
  traffic_.send_queue().Trim();
}

absl::StatusOr<Granted> TcpQueuePair::Grant(const Sge& range, Access access) {
  if (!regions_.Contains(range)) return regions_.Refusal(range);
  if (absl::Status status = CheckGrant(range, access, Atomics::kWithProcessor); !status.ok()) return status;
  const State state = life().state();
  if (state == State::kIdle || (state == State::kError && !life().ends_soon())) return NotUsable("Grant");
  const Granted granted = traffic_.receive_queue().grants().Add(range, access);
  if (granted.rkey == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("Grant to ", life().Peer(), ": all ",
                                                     GrantTable::kGrantsMax,
                                                     " grants of this queue pair are in use"));
  }
  return granted;
}

void TcpQueuePair::Revoke(uint32_t rkey, uint64_t wr_id) { traffic_.Revoke(rkey, wr_id); }

bool TcpQueuePair::TakePush(uint64_t wr_id, const Sge& sink, uint64_t remote_address, uint32_t rkey) {
  return regions_.Contains(sink) && traffic_.TakePush(wr_id, sink, remote_address, rkey);
}

// --- Events and completions
// ---------------------------------------------------------------------------------------------------------

void TcpQueuePair::OnEvents(uint32_t events) {
  if (life().state() >= State::kEstablished) [[likely]]
    return traffic_.OnEvents(events);
  if (life().state() != State::kIdle) ContinueToDial();
}

void TcpQueuePair::Deliver(CompletionSpan& out, bool receives) {
  if (receives) traffic_.ResumeIfReady();
  if (!life().has_established()) [[likely]]
    return traffic_.Deliver(out, receives);
  if (!receives) return completion_queue().Schedule(*this);
  const std::string private_data = life().TakeEstablished();
  completion_queue().Schedule(*this);
  if (traffic_.receives_soon()) completion_queue().NotifyEnd(*this);
  handler().OnEstablished(private_data);
}

void TcpQueuePair::OnEndDue() {
  if (life().has_established()) return completion_queue().Schedule(*this);
  if (traffic_.OnEndDue()) return;
  if (!life().has_news()) return;  // Disconnect() was called.
  // Something has completed since NotifyEnd(), which may have been called for pushes.
  if (traffic_.HasCompletions(/*flush=*/false)) return completion_queue().Schedule(*this);
  const std::unique_ptr<TcpQueuePairLife::News> last = life().TakeNews();
  completion_queue().Schedule(*this);
  if (last->ended_before_established) {
    handler().OnConnectFailed(last->why, last->private_data);
  } else {
    handler().OnDisconnected(last->why);
  }
}

void TcpQueuePair::OnTimer() { traffic_.OnTimer(); }
void TcpQueuePair::Acknowledge() { traffic_.Acknowledge(); }

void TcpQueuePair::Disconnect() { traffic_.Disconnect({}); }
void TcpQueuePair::DisconnectBecause(absl::string_view why) { traffic_.Disconnect(why); }

}  // namespace hawser::fabric
