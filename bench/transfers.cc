#include "hawser/bench/transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utility>

#include "absl/status/status.h"

namespace hawser::bench {
namespace {

[[noreturn]] void Die(const absl::Status& status) {
  fprintf(stderr, "bench: transfer: %s\n", status.ToString().c_str());
  exit(1);
}

}  // namespace

Transfers::Transfers(std::shared_ptr<Channel> channel, uint32_t bytes)
    : channel_(channel), target_(channel), bytes_(bytes) {
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(bytes);
  if (!buffer.ok()) Die(buffer.status());
  memset(buffer->data(), 'p', bytes);
  source_ = std::make_shared<Buffer>(*std::move(buffer));
}

double Transfers::Run(bool put, int count, int in_flight) {
  const auto ran = (put ? puts_ : gets_).Run({.exchanges = count}, in_flight);
  if (!ran.ok()) Die(ran.status());
  return static_cast<double>(bytes_) * ran->per_second();
}

void Transfers::Put() {
  auto call = target_.Put();
  call.request().adoptPayload(call.Attach(source_->reader(), source_));
  call.Send().Then([this](auto reply) { puts_.OnEnd(reply.status()); });
}

void Transfers::Get() {
  auto call = target_.Get();
  call.request().setBytes(bytes_);
  call.Send().Then([this](auto reply) {
    if (!reply.ok()) return gets_.OnEnd(reply.status());
    const capnp::Data::Reader payload = (*reply)->getPayload();
    const bool right = payload.size() == bytes_ && payload[0] == 'g' && payload[bytes_ - 1] == 'g';
    gets_.OnEnd(right ? absl::OkStatus() : absl::DataLossError("wrong payload"));
  });
}

}  // namespace hawser::bench
