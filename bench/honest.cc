#include "hawser/bench/honest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace hawser::bench {
namespace {

constexpr size_t kSmallBytes = 64;

}  // namespace

Honest::Honest(const ServerProcess& server, const TargetOptions& options, size_t put_bytes)
    : server_(server), channel_(ConnectTo(server, options, MakeRuntime(options))), target_(channel_) {
  absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(put_bytes);
  if (!buffer.ok()) {
    fprintf(stderr, "bench: %s\n", buffer.status().ToString().c_str());
    exit(1);
  }
  memset(buffer->data(), 'p', put_bytes);
  source_ = std::make_shared<Buffer>(*std::move(buffer));
}

Experience Honest::Run(absl::Duration time) {
  Experience seen;
  const auto note = [&seen](const absl::StatusOr<double>& took, std::vector<double>& samples) {
    if (took.ok()) return samples.push_back(*took);
    ++seen.lost;
    seen.why_lost = took.status().ToString();
  };
  for (const bool large : {false, true}) {
    const absl::Time end = absl::Now() + time / 2;
    do {
      large ? note(Put(), seen.put_us) : note(SmallCall(), seen.small_us);
    } while (absl::Now() < end);
    seen.worst_resident_bytes = std::max(seen.worst_resident_bytes, ResidentBytes(server_.pid()));
  }
  return seen;
}

absl::StatusOr<double> Honest::SmallCall() {
  const absl::Time start = absl::Now();
  auto call = target_.Echo();
  const capnp::Data::Reader payload(source_->data(), kSmallBytes);
  call.request().setPayload(payload);
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  if ((*reply)->getPayload() != payload) return absl::DataLossError("another echo");
  return absl::ToDoubleMicroseconds(absl::Now() - start);
}

absl::StatusOr<double> Honest::Put() {
  const absl::Time start = absl::Now();
  auto call = target_.Put();
  call.request().adoptPayload(call.Attach(source_->reader(), source_));
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return absl::ToDoubleMicroseconds(absl::Now() - start);
}

absl::Status Honest::Get(uint32_t bytes) {
  auto call = target_.Get();
  call.request().setBytes(bytes);
  return call.Send().Wait().status();
}

absl::StatusOr<Honest::ServerMemory> Honest::Memory() {
  auto call = target_.Stats();
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return ServerMemory{static_cast<double>((*reply)->getConnections()),
                      static_cast<double>((*reply)->getLeasedBytes()), ResidentBytes(server_.pid())};
}

}  // namespace hawser::bench
