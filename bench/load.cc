#include "hawser/bench/load.h"

#include <stdio.h>
#include <stdlib.h>

#include "absl/status/status.h"

namespace hawser::bench {

void Load::Wait() {
  const absl::Status status = in_flight_.Wait().status();
  if (status.ok()) return;
  fprintf(stderr, "bench: echo: %s\n", status.ToString().c_str());
  exit(1);
}

void Load::Next() {
  auto call = target_.Echo();
  call.request().setPayload(
      capnp::Data::Reader(reinterpret_cast<const uint8_t*>(payload_.data()), payload_.size()));
  call.Send().Then([this](auto reply) {
    const bool whole = reply.ok() && (*reply)->getPayload().size() == payload_.size();
    in_flight_.OnEnd(whole || !reply.ok() ? reply.status() : absl::DataLossError("wrong size"));
  });
}

}  // namespace hawser::bench
