#include "hawser/rpc/server/poller_group.h"

#include <utility>

#include "hawser/rpc/wire/background.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::internal {

absl::StatusOr<std::unique_ptr<PollerGroup>> PollerGroup::Create(std::shared_ptr<transport::Runtime> runtime,
                                                                 const MethodTable& methods,
                                                                 ServerCredentials& credentials,
                                                                 Clients& clients) {
  absl::StatusOr<transport::Poller*> front_desk = runtime->FrontDesk();
  if (!front_desk.ok()) return front_desk.status();
  return std::unique_ptr<PollerGroup>(
      new PollerGroup(std::move(runtime), **front_desk, methods, credentials, clients));
}

PollerGroup::PollerGroup(std::shared_ptr<transport::Runtime> runtime, transport::Poller& front_desk,
                         const MethodTable& methods, ServerCredentials& credentials, Clients& clients)
    : methods_(methods),
      credentials_(credentials),
      clients_(clients),
      runtime_(std::move(runtime)),
      front_desk_(&front_desk) {
  if (credentials.given() && runtime_->carries_tls()) {
    proof_desk_ = std::make_unique<transport::ProofDesk>(front_desk);
  }
}

void PollerGroup::OnPeer(transport::PeerRequest request) {
  if (!transport::IsProof(request.hello().role)) return clients_.OnPeer(*this, std::move(request));
  credentials_.AcceptProof(proof_desk_.get(), std::move(request));
}

void PollerGroup::ProofsOnly::OnPeer(transport::PeerRequest request) {
  if (transport::IsProof(request.hello().role)) return group.OnPeer(std::move(request));
  request.Refuse(absl::FailedPreconditionError(
      "over TCP this port only proves who connects over RDMA; connect to it with rdma://"));
}

absl::StatusOr<ServingPoller*> PollerGroup::NextPoller(const PeerHost& host) {
  bool is_full_of_host = false;
  for (size_t tries = runtime_->poller_limit(); tries > 0; --tries) {
    ServingPoller& serving = ServingOn(runtime_->NextPoller());
    const ServingPoller::Queue queue = serving.StartWaiting(host);
    if (queue == ServingPoller::Queue::kHasRoom) return &serving;
    is_full_of_host |= queue == ServingPoller::Queue::kIsFullOfHost;
  }
  return ServingPoller::FullError(is_full_of_host);
}

ServingPoller& PollerGroup::ServingOn(transport::Poller& poller) {
  absl::MutexLock lock(&mutex_);
  for (const auto& serving : serving_) {
    if (&serving->poller() == &poller) return *serving;
  }
  return *serving_.emplace_back(std::make_unique<ServingPoller>(poller, methods_.size()));
}

std::vector<ServingPoller*> PollerGroup::Serving() const {
  std::vector<ServingPoller*> all;
  absl::MutexLock lock(&mutex_);
  for (const auto& serving : serving_) all.push_back(serving.get());
  return all;
}

bool PollerGroup::serves() const {
  absl::MutexLock lock(&mutex_);
  return !serving_.empty();
}

bool PollerGroup::on_one() const {
  for (size_t i = 0; i < runtime_->poller_count(); ++i) {
    if (runtime_->poller(i).Held()) return true;
  }
  return false;
}

void PollerGroup::AddTo(ServerStats& stats) const {
  stats.leased_bytes += runtime_->buffers().stats().leased_bytes;
  std::vector<const transport::Poller*> all;
  for (size_t i = 0; i < runtime_->poller_count(); ++i) {
    all.push_back(&runtime_->poller(i));
    stats.pollers.push_back(all.back()->stats());
  }
  // A runtime without threads uses one of these pollers as its front desk.
  if (front_desk_ != all[0]) all.push_back(front_desk_);
  for (const transport::Poller* poller : all) {
    for (size_t v = 0; v < kViolationCount; ++v) {
      stats.violations.by_reason[v] += poller->violations().count(static_cast<Violation>(v));
    }
    stats.stalled_in_shutdown += poller->violations().stalled();
  }
  for (ServingPoller* const serving : Serving()) {
    stats.calls_running += serving->counters().calls_running.value();
    stats.calls_total += serving->counters().calls_total.value();
  }
}

void PollerGroup::CloseProofs() {
  if (proof_desk_ == nullptr) return;
  RunAndWait(proof_desk_->poller(), [this] { proof_desk_->Close(); });
}

void PollerGroup::Destroy(std::unique_ptr<PollerGroup> unused) {
  if (unused->proof_desk_ == nullptr) return;
  unused->CloseProofs();
  RunAndWait(unused->proof_desk_->poller(), [] {});  // The turn of that has ended.
}

}  // namespace hawser::internal
