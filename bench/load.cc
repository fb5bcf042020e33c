#include "hawser/bench/load.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

namespace hawser::bench {

void Load::Start(int calls, int in_flight) {
  left_ = calls;
  unanswered_ = calls;
  done_ = std::make_unique<absl::Notification>();
  for (int i = 0; i < std::min(calls, in_flight); ++i) Next();
}

void Load::Next() {
  if (left_.fetch_sub(1, std::memory_order_relaxed) <= 0) return;
  auto call = target_.Echo();
  call.request().setPayload(
      capnp::Data::Reader(reinterpret_cast<const uint8_t*>(payload_.data()), payload_.size()));
  call.Send().Then([this](auto reply) {
    if (!reply.ok() || (*reply)->getPayload().size() != payload_.size()) {
      fprintf(stderr, "bench: echo: %s\n", reply.ok() ? "wrong size" : reply.status().ToString().c_str());
      exit(1);
    }
    // Before the next call is sent: it may be answered, and this object destroyed, at once.
    const bool last = unanswered_.fetch_sub(1, std::memory_order_relaxed) == 1;
    if (last) return done_->Notify();
    Next();
  });
}

}  // namespace hawser::bench
