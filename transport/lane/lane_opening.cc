#include "hawser/transport/lane/lane_opening.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/wire/options.h"
#include "hawser/transport/wire/proof.h"

namespace hawser::transport {

LaneOpening::LaneOpening(Poller& poller, const LaneTarget& target, Owner& owner)
    : poller_(poller), target_(target), owner_(owner) {
  offer_.role = Role::kLane;
  offer_.features = kFeatureArrivals;
  offer_.slots = 1;
  offer_.receive_buffer_bytes = kReceiveBufferMin;
  offer_.session = target.session;
}

void LaneOpening::SetOptions(fabric::QueuePairOptions& options) const {
  options.local_address = target_.local_address;
  if (proves()) return;
  options.tls = target_.security.tls;
  options.tls_host = target_.security.host;
}

absl::Status LaneOpening::Start(absl::Duration timeout) {
  if (!proves()) return owner_.ConnectWith(Encode(offer_));
  Prover::Client& client = *this;
  const auto prover = std::make_shared<Prover>(poller_, target_.address, target_.local_address, offer_,
                                               target_.security, client);
  prover_ = prover;
  prover->Start(timeout);
  return absl::OkStatus();
}

void LaneOpening::OnProof(absl::StatusOr<Prover::Result> result) {
  if (prover_ == nullptr) return;
  absl::Status status = result.status();
  if (result.ok()) {
    proof_ = *std::move(result);
    connect_ = EncodeConnect(offer_, proof_.proof);
    status = owner_.ConnectWith(connect_);
  }
  if (!status.ok()) owner_.OnNotOpened(status);
}

absl::Status LaneOpening::TakeAnswer(absl::string_view private_data,
                                     std::shared_ptr<const PeerIdentity> identity) {
  if (proves() && prover_ == nullptr) {
    return absl::UnauthenticatedError("the proof was given up before the answer");
  }
  const absl::StatusOr<Handshake> answer =
      proves() ? DecodeAccept(private_data, Role::kLane, proof_.proof.key, connect_)
               : DecodeAccept(private_data, Role::kLane);
  if (!answer.ok()) return answer.status();
  owner_knows_ping_ = (answer->features & kFeatureLanePing) != 0;
  owner_counts_ = (answer->features & kFeatureArrivals) != 0;
  if ((answer->features & kFeatureAtomics) != 0) {
    owner_atomics_ = (answer->features & kFeatureAtomicsWithProcessor) != 0 ? fabric::Atomics::kWithProcessor
                                                                            : fabric::Atomics::kNic;
  }
  const std::shared_ptr<const PeerIdentity> reached =
      OrNotAuthenticated(proves() ? proof_.server : std::move(identity));
  Stop();
  if (*reached == *OrNotAuthenticated(target_.peer)) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat("it reached another server than the channel: \"",
                                                 reached->ToString(),
                                                 "\"; do several servers share the address?"));
}

void LaneOpening::Stop() {
  if (prover_ != nullptr) std::exchange(prover_, nullptr)->Abandon();
}

}  // namespace hawser::transport
