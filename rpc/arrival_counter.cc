#include "hawser/rpc/arrival_counter.h"

#include <utility>

#include "hawser/base/check.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/transport/lane/arrivals.h"

namespace hawser {

ArrivalCounter::ArrivalCounter() : arrivals_(std::make_shared<transport::Arrivals>()) {}

ArrivalCounter::~ArrivalCounter() {
  if (arrivals_->in_child()) {
    // Another thread of the parent may have held its lock: leaked.
    new std::shared_ptr<transport::Arrivals>(std::move(arrivals_));
    return;
  }
  arrivals_->End();
}

uint64_t ArrivalCounter::count() const { return arrivals_->count(); }

bool ArrivalCounter::CallWhen(uint64_t n, absl::AnyInvocable<void()> callback) {
  HAWSER_CHECK(callback != nullptr, "ArrivalCounter::CallWhen() without a callback");
  return arrivals_->CallWhen(n, [callback = std::move(callback)]() mutable {
    internal::CallUser("the callback of", "an arrival counter", callback);
  });
}

}  // namespace hawser
