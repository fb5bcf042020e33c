#include "hawser/measure/verbs/raw_client.h"

#include <algorithm>

#include "hawser/transport/clock/environment.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

absl::StatusOr<std::unique_ptr<RawClient>> RawClient::Connect(std::shared_ptr<Runtime> runtime,
                                                              const SocketAddress& to, const RawPlan& plan,
                                                              const Options& options) {
  if (absl::Status wrong = plan.Check(); !wrong.ok()) return wrong;
  fabric::Fabric& fabric = runtime->fabric();
  auto loop = RawLoop::Create(fabric, options.polling);
  if (!loop.ok()) return loop.status();
  std::unique_ptr<RawClient> made(new RawClient(std::move(runtime), plan, options, *std::move(loop)));
  auto queue_pair = RawQueuePair::Create(fabric, *made->loop_, plan, RawQueuePair::Side::kClient);
  if (!queue_pair.ok()) return queue_pair.status();
  made->queue_pair_ = *std::move(queue_pair);
  made->loop_->set_patience(options.patience);
  absl::Status status = made->queue_pair_->Connect(to, EncodeRawGreeting(options.token, plan));
  while (status.ok() && !made->queue_pair_->established()) status = made->queue_pair_->Turn();
  if (status.ok() && plan.kind != RawPlan::Kind::kExchange) status = made->Begin();
  if (!status.ok()) return status;
  return made;
}

// Lends or borrows the memory that is reached.
absl::Status RawClient::Begin() {
  if (plan_.kind == RawPlan::Kind::kServerReads) {
    const absl::StatusOr<fabric::Granted> granted = queue_pair_->Grant();
    if (!granted.ok()) return granted.status();
    granted_ = *granted;
    return absl::OkStatus();
  }
  if (absl::Status status = queue_pair_->SendOne(RawCommand()); !status.ok()) return status;
  RawReport report;
  if (absl::Status status = queue_pair_->ReceiveOne(report); !status.ok()) return status;
  granted_ = {report.address, report.rkey};
  return absl::OkStatus();
}

absl::Status RawClient::ExchangeOne() {
  absl::Status status = queue_pair_->Send(1);
  while (status.ok() && queue_pair_->TakeReceived() == 0) status = queue_pair_->Turn();
  return status;
}

absl::StatusOr<RawClient::Ran> RawClient::Exchange(const Extent& extent) {
  const int64_t start_ns = fabric::MonotonicNs();
  const int64_t end_ns = After(start_ns, extent.time);
  int64_t sent = 0, ended = 0;
  bool more = true;
  while (more || ended < sent) {
    if (more) {
      const int64_t count = std::min(int64_t{plan_.depth} - (sent - ended), extent.count - sent);
      absl::Status status = queue_pair_->Send(static_cast<uint32_t>(std::max<int64_t>(count, 0)));
      if (!status.ok()) return status;
      sent += count;
    }
    if (absl::Status status = queue_pair_->Turn(); !status.ok()) return status;
    if (const uint32_t answers = queue_pair_->TakeReceived(); answers > 0) {
      ended += answers;
      if (ended > sent) return absl::DataLossError("the server answered more than it was asked");
      more = more && sent < extent.count && fabric::MonotonicNs() < end_ns;
    }
  }
  return Ran{ended, absl::Nanoseconds(fabric::MonotonicNs() - start_ns)};
}

absl::Status RawClient::OperateOne() { return queue_pair_->OperateOne(granted_); }

absl::StatusOr<RawClient::Ran> RawClient::Operate(const Extent& extent) {
  const int64_t start_ns = fabric::MonotonicNs();
  Ran ran;
  if (plan_.kind != RawPlan::Kind::kServerReads) {
    const auto operations = queue_pair_->Operate(granted_, extent.count, extent.time);
    if (!operations.ok()) return operations.status();
    ran.count = *operations;
  } else {
    const absl::Duration time = std::min(extent.time, kRawReadsTimeMax);
    const RawCommand command = {.address = granted_.address,
                                .rkey = granted_.rkey,
                                .reads_max = extent.count,
                                .time_ns = absl::ToInt64Nanoseconds(time)};
    if (absl::Status status = queue_pair_->SendOne(command); !status.ok()) return status;
    loop_->set_patience(patience_ + time);  // This end sees nothing of READs.
    RawReport report;
    const absl::Status status = queue_pair_->ReceiveOne(report);
    loop_->set_patience(patience_);
    if (!status.ok()) return status;
    if (report.reads < 1 || report.reads > extent.count) {
      return absl::DataLossError("the server says that there were no READs, or too many");
    }
    ran.count = report.reads;
  }
  ran.time = absl::Nanoseconds(fabric::MonotonicNs() - start_ns);
  return ran;
}

}  // namespace hawser::transport
