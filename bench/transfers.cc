#include "hawser/bench/transfers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

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
  put_ = put;
  left_ = unanswered_ = count;
  done_ = std::make_unique<absl::Notification>();
  const absl::Time start = absl::Now();
  for (int i = 0; i < std::min(count, in_flight); ++i) Next();
  done_->WaitForNotification();
  return static_cast<double>(bytes_) * count / absl::ToDoubleSeconds(absl::Now() - start);
}

void Transfers::Next() {
  if (left_.fetch_sub(1) <= 0) return;
  if (put_) {
    auto call = target_.Put();
    call.request().adoptPayload(call.Attach(source_->reader(), source_));
    call.Send().Then([this](auto reply) {
      if (!reply.ok()) Die(reply.status());
      OnAnswer();
    });
  } else {
    auto call = target_.Get();
    call.request().setBytes(bytes_);
    call.Send().Then([this](auto reply) {
      if (!reply.ok()) Die(reply.status());
      const capnp::Data::Reader payload = (*reply)->getPayload();
      if (payload.size() != bytes_ || payload[0] != 'g' || payload[bytes_ - 1] != 'g') {
        Die(absl::DataLossError("wrong payload"));
      }
      OnAnswer();
    });
  }
}

void Transfers::OnAnswer() {
  if (unanswered_.fetch_sub(1) == 1) return done_->Notify();
  Next();
}

}  // namespace hawser::bench
