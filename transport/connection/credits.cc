#include "hawser/transport/connection/credits.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::transport {
namespace {

absl::Status NotAgreed(uint16_t credits) {
  return absl::DataLossError(
      absl::StrCat("sent a message with reserved bits ", absl::Hex(credits), ": credits were not agreed"));
}

}  // namespace

// ---- CreditGiver

absl::Status CreditGiver::Refused(uint16_t in_flight, uint32_t unanswered) const {
  if (!agreed_) return NotAgreed(in_flight);
  if (in_flight == 0) return absl::DataLossError("sent a request that says that none is in flight");
  return absl::DataLossError(absl::StrCat("sent a request that says that ", in_flight,
                                          " are in flight, and has ", unanswered, " unanswered, with ",
                                          limit_, " credits"));
}

// Doubles the credits each time, so that a burst has all its credits after a few round trips. If the pool has
// no memory, the ring waits for it, and GiveWhatIsPosted() gives the credits later: the peer, which has no
// credit left, cannot ask again.
void CreditGiver::GiveMore() {
  wanted_ = std::min(2 * limit_, slots_);
  if (ring_.Allow(wanted_)) Give();
}

void CreditGiver::Give() {
  given_ = static_cast<uint16_t>(given_ + wanted_ - limit_);
  limit_ = wanted_;
}

absl::Status CreditGiver::OnReturn(uint32_t unanswered) {
  if (!agreed_) return absl::DataLossError("returned a credit: credits were not agreed");
  if (limit_ <= std::max(FirstCredits(slots_), unanswered)) {
    return absl::DataLossError(absl::StrCat("returned a credit of ", limit_, " with ", unanswered,
                                            " requests unanswered; it keeps ", FirstCredits(slots_)));
  }
  // A peer that returns credits needs no more of them.
  wanted_ = --limit_;
  ring_.Allow(limit_);
  return absl::OkStatus();
}

// ---- CreditTaker

absl::Status CreditTaker::Take(uint16_t given) {
  if (!agreed_) return NotAgreed(given);
  // If the sum decreases, `more` is nearly 2^16, which is more than there are slots.
  const auto more = static_cast<uint16_t>(given - given_);
  if (more > slots_ - limit_) {
    return absl::DataLossError(absl::StrCat("gives ", given, " credits in all after ", given_, ", with ",
                                            limit_, " of ", slots_, " slots in use of them"));
  }
  given_ = given;
  limit_ += more;
  return absl::OkStatus();
}

// Keeps twice as many credits as were in flight. The responder gives more when the last free credit is used,
// so under a steady load no credit is returned and given again.
uint32_t CreditTaker::TakeOffUnused(uint32_t in_flight) {
  const uint32_t most = std::exchange(most_in_flight_, in_flight);
  const uint32_t kept = std::max(FirstCredits(slots_), 2 * std::max(most, in_flight));
  if (!agreed_ || kept >= limit_) return 0;
  const uint32_t before = std::exchange(limit_, kept);
  return before - kept;
}

}  // namespace hawser::transport
