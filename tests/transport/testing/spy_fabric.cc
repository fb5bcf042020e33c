#include "hawser/tests/transport/testing/spy_fabric.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "hawser/transport/poller/work_id.h"

namespace hawser::transport {

class SpyFabric::SpyCompletionQueue final : public fabric::CompletionQueue {
 public:
  SpyCompletionQueue(SpyFabric& spy, std::unique_ptr<fabric::CompletionQueue> real)
      : spy_(spy), real_(std::move(real)) {}

  size_t Poll(absl::Span<fabric::Completion> completions) override {
    fabric::Completion found[64];
    const size_t count = real_->Poll(absl::MakeSpan(found, std::min(completions.size(), std::size(found))));
    for (size_t i = 0; i < count; ++i) Take(found[i]);
    if (!spy_.keep_back_flushes_) {
      for (const auto& [counts, flush] : flushes_) {
        if (spy_.IsLive(*counts)) news_.push_back(flush);
      }
      flushes_.clear();
    }
    ReleaseHeld();
    if (!spy_.keep_back_.has_value()) {
      news_.insert(news_.begin(), kept_back_.begin(), kept_back_.end());
      kept_back_.clear();
    }
    size_t given = 0;
    for (; given < completions.size() && !news_.empty(); ++given) {
      completions[given] = news_.front();
      news_.pop_front();
    }
    return given;
  }
  void WaitUntil(int64_t when_ns) override { real_->WaitUntil(when_ns); }
  void Wake() override { real_->Wake(); }

  fabric::CompletionQueue& real() { return *real_; }
  // No receive waits here that has completed.
  bool MayOffer() const {
    return spy_.offers_sends_ && news_.empty() && kept_back_.empty() &&
           spy_.keep_back_ != fabric::Opcode::kReceive;
  }

 private:
  void Take(const fabric::Completion& completion) {
    const bool ok = completion.status == fabric::CompletionStatus::kSuccess;
    Counts& counts = *spy_.CountsOf(completion.qp_num);
    if (completion.opcode == fabric::Opcode::kRevoke) --counts.revocations;
    if (spy_.keep_back_flushes_ && completion.status == fabric::CompletionStatus::kFlushed) {
      flushes_.emplace_back(&counts, completion);
      return;
    }
    if (spy_.reads_.erase(completion.wr_id) != 0) --counts.reads_outstanding;
    const bool behind_a_read = spy_.keep_back_ == fabric::Opcode::kRead && !kept_back_.empty() &&
                               completion.opcode == fabric::Opcode::kSend;
    std::deque<fabric::Completion>& held = held_[counts.number];
    const bool passes =
        !counts.hold_taken_pushes && WorkId::Decode(completion.wr_id).kind == WorkId::kTakenPush;
    const bool may_hold = ok && !counts.in_error;
    if (may_hold && !passes &&
        ((counts.hold_reads && completion.opcode == fabric::Opcode::kRead) ||
         (!held.empty() && completion.opcode != fabric::Opcode::kReceive))) {
      counts.reads_held += completion.opcode == fabric::Opcode::kRead;
      return held.push_back(completion);
    }
    if (may_hold && (completion.opcode == spy_.keep_back_ || behind_a_read)) {
      return kept_back_.push_back(completion);
    } else if (ok && completion.opcode == fabric::Opcode::kReceive) {
      --counts.receives_posted;
      counts.receives_posted_min = std::min(counts.receives_posted_min, counts.receives_posted);
    }
    if (!ok) {  // The completions that were held back come before it.
      counts.in_error = true;
      news_.insert(news_.end(), held.begin(), held.end());
      held.clear();
      counts.reads_held = 0;
      news_.insert(news_.end(), kept_back_.begin(), kept_back_.end());
      kept_back_.clear();
    }
    news_.push_back(completion);
  }

  // For queue pairs that hold READs: delivers the READs that the test lets through, and what was posted
  // between.
  void ReleaseHeld() {
    for (auto& [number, held] : held_) {
      Counts* const counts = &spy_.counts(number);
      if (!spy_.IsLive(*counts)) {
        held.clear();
        counts->reads_held = 0;
      }
      while (!held.empty()) {
        if (counts->hold_reads && held.front().opcode == fabric::Opcode::kRead) {
          if (counts->reads_let_through == 0) break;
          --counts->reads_let_through;
        }
        counts->reads_held -= held.front().opcode == fabric::Opcode::kRead;
        news_.push_back(held.front());
        held.pop_front();
      }
    }
  }

  SpyFabric& spy_;
  const std::unique_ptr<fabric::CompletionQueue> real_;
  // By queue pair: its qp_num changes when the fabric has done with the device's, between two completions.
  std::map<size_t, std::deque<fabric::Completion>> held_;  // The key is Counts::number.
  std::deque<fabric::Completion> news_;
  std::deque<fabric::Completion> kept_back_;
  std::deque<std::pair<Counts*, fabric::Completion>> flushes_;
};

// Keeps SENDs that the real fabric offers in order with the completions that the spy keeps back.
class SpyFabric::SpyHandler final : public fabric::ConnectionHandler {
 public:
  SpyHandler(const SpyFabric& spy, const SpyCompletionQueue& completion_queue,
             fabric::ConnectionHandler& handler)
      : spy_(spy), completion_queue_(completion_queue), handler_(handler) {}

  bool TakeSend(absl::Span<const uint8_t> message) override {
    const bool taken = completion_queue_.MayOffer() && handler_.TakeSend(message);
    if (taken) ++counts_->taken_sends;
    return taken;
  }
  void set_counts(Counts& counts) { counts_ = &counts; }
  void OnEstablished(absl::string_view private_data) override {
    if (!spy_.loses_established_) handler_.OnEstablished(private_data);
  }
  std::string OnAcceptFailed(const absl::Status& why) override { return handler_.OnAcceptFailed(why); }
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override {
    handler_.OnConnectFailed(why, private_data);
  }
  void OnDisconnected(const absl::Status& why) override { handler_.OnDisconnected(why); }

 private:
  const SpyFabric& spy_;
  const SpyCompletionQueue& completion_queue_;
  fabric::ConnectionHandler& handler_;
  Counts* counts_ = nullptr;
};

class SpyFabric::SpyQueuePair final : public fabric::QueuePair {
 public:
  SpyQueuePair(SpyFabric& spy, std::unique_ptr<SpyHandler> handler, std::unique_ptr<fabric::QueuePair> real,
               Counts& counts)
      : spy_(spy), handler_(std::move(handler)), real_(std::move(real)), counts_(counts) {
    spy_.live_.push_back(this);
  }
  ~SpyQueuePair() override {
    spy_.live_.erase(std::find(spy_.live_.begin(), spy_.live_.end(), this));
    counts_.revocations = 0;  // None completes any more.
  }

  Counts& counts() { return counts_; }
  uint32_t qp_num() const override { return real_->qp_num(); }
  uint32_t read_depth() const override { return real_->read_depth(); }
  bool takes_atomics() const override { return real_->takes_atomics(); }
  SocketAddress peer_address() const override { return real_->peer_address(); }
  SocketAddress local_address() const override { return real_->local_address(); }
  absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override {
    return real_->Connect(address, private_data);
  }
  absl::Status Accept(fabric::ConnectRequest& request, absl::string_view private_data) override {
    return real_->Accept(request, private_data);
  }
  bool PeerSharesCore() const override { return spy_.peers_share_core_; }
  absl::Status PostSend(absl::Span<const fabric::SendWorkRequest> requests) override {
    if (spy_.fail_posts_) return absl::Status(spy_.fail_posts_code_, "nothing can be posted");
    for (const fabric::SendWorkRequest& request : requests) {
      if (request.sges.size() > spy_.sge_max()) return absl::InvalidArgumentError("too many sges");
    }
    absl::Status status = real_->PostSend(requests);
    if (!status.ok()) return status;
    ++counts_.send_posts;
    counts_.inline_sends += std::exchange(inline_waiting_, 0u);
    for (const fabric::SendWorkRequest& request : requests) {
      if (request.opcode == fabric::Opcode::kRead) {
        ++counts_.reads;
        if (request.signaled) ++counts_.signaled_reads;
        for (const fabric::Sge& sge : request.sges) counts_.read_bytes += sge.length;
        counts_.reads_outstanding_max = std::max(counts_.reads_outstanding_max, ++counts_.reads_outstanding);
        spy_.reads_[request.wr_id] = true;
      } else if (request.opcode == fabric::Opcode::kPush) {
        ++counts_.pushes;
      } else {
        ++counts_.sends;
        counts_.send_sges_most = std::max(counts_.send_sges_most, request.sges.size());
        if (request.signaled) ++counts_.signaled_sends;
        const bool ends = request.rkey != 0 && spy_.sends_end_grants();
        if (request.remote_address != 0 || (request.rkey != 0 && !ends)) ++counts_.sends_that_name_memory;
        if (ends) ++counts_.sends_that_end_grants;
      }
    }
    return status;
  }
  bool PostInline(absl::Span<const uint8_t> message) override {
    const bool posted = spy_.posts_inline_ && !spy_.fail_posts_ && real_->PostInline(message);
    inline_waiting_ += posted;
    return posted;
  }
  void RingDoorbell() override {
    ++counts_.doorbells;
    counts_.inline_sends += std::exchange(inline_waiting_, 0u);
    real_->RingDoorbell();
  }
  absl::Status PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests) override {
    absl::Status status = real_->PostReceive(requests);
    if (status.ok()) counts_.receives_posted += static_cast<int64_t>(requests.size());
    if (status.ok()) ++counts_.receive_posts;
    return status;
  }
  size_t WithdrawReceives(absl::Span<uint64_t> wr_ids) override {
    const size_t count = real_->WithdrawReceives(wr_ids);
    counts_.receives_posted -= static_cast<int64_t>(count);
    return count;
  }
  void Trim() override {
    ++counts_.trims;
    real_->Trim();
  }
  bool HasUnpolled() const override { return spy_.has_unpolled_.value_or(real_->HasUnpolled()); }
  absl::StatusOr<fabric::Granted> Grant(const fabric::Sge& range, Access access) override {
    if (counts_.grants >= spy_.grants_max_) return absl::ResourceExhaustedError("no more grants");
    absl::StatusOr<fabric::Granted> granted = real_->Grant(range, access);
    if (granted.ok()) counts_.grants_max = std::max(counts_.grants_max, ++counts_.grants);
    return granted;
  }
  void Revoke(uint32_t rkey, uint64_t wr_id) override {
    --counts_.grants;
    ++counts_.revocations;
    real_->Revoke(rkey, wr_id);
  }
  void OpenSink(uint8_t* address, uint64_t length_bytes) override {
    ++counts_.sinks_opened;
    ++counts_.open_sinks;
    real_->OpenSink(address, length_bytes);
  }
  bool CloseSink(const uint8_t* address) override {
    --counts_.open_sinks;
    return real_->CloseSink(address) && !counts_.keeps_sinks;
  }
  uint32_t push_bytes_max() const override { return spy_.pushes_ ? real_->push_bytes_max() : 0; }
  bool TakePush(uint64_t wr_id, const fabric::Sge& sink, uint64_t remote_address, uint32_t rkey) override {
    const bool taken = real_->TakePush(wr_id, sink, remote_address, rkey);
    counts_.taken_pushes += taken;
    return taken;
  }
  bool offers_push() const override { return real_->offers_push(); }
  std::optional<uint64_t> answered_read_bytes() const override {
    if (counts_.hides_reads) return std::nullopt;
    return real_->answered_read_bytes();
  }
  Progress progress() const override {
    const Progress real = counts_.hides_reads ? Progress() : real_->progress();
    return {real.sent + counts_.more_progress.sent, real.arrived + counts_.more_progress.arrived};
  }
  void Disconnect() override { real_->Disconnect(); }
  bool ForceFlush() override { return real_->ForceFlush(); }
  void DisconnectBecause(absl::string_view why) override { real_->DisconnectBecause(why); }

 private:
  SpyFabric& spy_;
  const std::unique_ptr<SpyHandler> handler_;
  const std::unique_ptr<fabric::QueuePair> real_;
  Counts& counts_;
  uint32_t inline_waiting_ = 0;  // For the doorbell.
};

bool SpyFabric::revokes() const {
  return std::any_of(counts_.begin(), counts_.end(),
                     [](const auto& counts) { return counts->revocations > 0; });
}

SpyFabric::Counts* SpyFabric::CountsOf(uint32_t qp_num) const {
  const auto is = [&](const SpyQueuePair* queue_pair) { return queue_pair->qp_num() == qp_num; };
  const auto found = std::find_if(live_.begin(), live_.end(), is);
  return found == live_.end() ? nullptr : &(*found)->counts();
}

bool SpyFabric::IsLive(const Counts& counts) const {
  const auto is = [&](SpyQueuePair* queue_pair) { return &queue_pair->counts() == &counts; };
  return std::any_of(live_.begin(), live_.end(), is);
}

absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> SpyFabric::CreateCompletionQueue(uint32_t depth) {
  auto real = real_->CreateCompletionQueue(depth);
  if (!real.ok()) return real.status();
  return std::make_unique<SpyCompletionQueue>(*this, *std::move(real));
}

absl::StatusOr<std::unique_ptr<fabric::QueuePair>> SpyFabric::CreateQueuePair(
    fabric::CompletionQueue& completion_queue, const fabric::QueuePairOptions& options,
    fabric::ConnectionHandler& handler) {
  auto& spied = dynamic_cast<SpyCompletionQueue&>(completion_queue);
  auto spy_handler = std::make_unique<SpyHandler>(*this, spied, handler);
  auto real = real_->CreateQueuePair(spied.real(), options, *spy_handler);
  if (!real.ok()) return real.status();
  counts_.push_back(std::make_unique<Counts>());
  counts_.back()->number = counts_.size() - 1;
  counts_.back()->receive_depth = options.receive_depth;
  spy_handler->set_counts(*counts_.back());
  return std::make_unique<SpyQueuePair>(*this, std::move(spy_handler), *std::move(real), *counts_.back());
}

namespace {

class ShortListener final : public fabric::Listener {
 public:
  ShortListener(std::unique_ptr<fabric::Listener> real, absl::Status shortfall)
      : real_(std::move(real)), shortfall_(std::move(shortfall)) {}
  SocketAddress address() const override { return real_->address(); }
  absl::Status shortfall() const override { return shortfall_; }

 private:
  const std::unique_ptr<fabric::Listener> real_;
  const absl::Status shortfall_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<fabric::Listener>> SpyFabric::Listen(fabric::CompletionQueue& completion_queue,
                                                                    const SocketAddress& address,
                                                                    fabric::ListenHandler& handler,
                                                                    const fabric::ListenOptions& options) {
  absl::StatusOr<std::unique_ptr<fabric::Listener>> listener =
      real_->Listen(dynamic_cast<SpyCompletionQueue&>(completion_queue).real(), address, handler, options);
  if (!listener.ok() || shortfall_.ok()) return listener;
  return std::make_unique<ShortListener>(*std::move(listener), shortfall_);
}

}  // namespace hawser::transport
