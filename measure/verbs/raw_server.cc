#include "hawser/measure/verbs/raw_server.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::transport {
namespace {

absl::string_view ForRejection(const absl::Status& why) {
  return absl::string_view(why.message()).substr(0, fabric::kRejectPrivateDataMax);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawServer>> RawServer::Listen(std::shared_ptr<Runtime> runtime,
                                                             const Options& options) {
  fabric::Fabric& fabric = runtime->fabric();
  auto loop = RawLoop::Create(fabric, options.polling);
  if (!loop.ok()) return loop.status();
  std::unique_ptr<RawServer> made(new RawServer(std::move(runtime), options, *std::move(loop)));
  made->loop_->set_end(After(fabric::MonotonicNs(), options.accept_time));
  auto listener = fabric.Listen(made->loop_->completion_queue(), options.address, *made);
  if (!listener.ok()) return listener.status();
  made->listener_ = *std::move(listener);
  made->port_ = made->listener_->address().port();
  return made;
}

void RawServer::OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) {
  if (request_ != nullptr || PeerHost(request->peer_address()) != options_.host) return;
  const std::optional<RawPlan> plan = DecodeRawGreeting(request->private_data(), options_.token);
  if (!plan.has_value()) return;
  if (absl::Status wrong = plan->Check(); !wrong.ok()) return request->Reject(ForRejection(wrong));
  plan_ = *plan;
  request_ = std::move(request);
  loop_->OnEvent();
}

absl::Status RawServer::Serve() {
  const absl::Status why = ServeOne();
  // Nothing is left open that nothing polls.
  request_.reset();
  listener_.reset();
  queue_pair_.reset();
  return why;
}

absl::Status RawServer::ServeOne() {
  while (request_ == nullptr) {
    if (absl::Status status = loop_->Turn().status(); !status.ok()) return status;
  }
  if (absl::Status status = Accept(); !status.ok()) return status;
  switch (plan_.kind) {
    case RawPlan::Kind::kExchange:
      return ServeExchanges();
    case RawPlan::Kind::kClientReads:
    case RawPlan::Kind::kClientWrites:
    case RawPlan::Kind::kClientFetchAdds:
      return LendMemory();
    case RawPlan::Kind::kServerReads:
      return ServeReads();
  }
  return absl::InternalError("an unknown plan was accepted");
}

absl::Status RawServer::Accept() {
  auto made = RawQueuePair::Create(runtime_->fabric(), *loop_, plan_, RawQueuePair::Side::kServer);
  absl::Status status = made.ok() ? (*made)->Accept(*request_) : made.status();
  if (!status.ok()) request_->Reject(ForRejection(status));
  request_.reset();
  listener_.reset();
  if (!status.ok()) return status;
  queue_pair_ = *std::move(made);
  while (!queue_pair_->established()) {
    if (status = queue_pair_->Turn(); !status.ok()) return status;
  }
  loop_->set_end(kNever);
  return absl::OkStatus();
}

absl::Status RawServer::ServeExchanges() {
  while (true) {
    if (const uint32_t requests = queue_pair_->TakeReceived(); requests > 0) {
      if (absl::Status status = queue_pair_->Send(requests); !status.ok()) return status;
    }
    if (absl::Status status = queue_pair_->Turn(); !status.ok()) return status;
  }
}

absl::Status RawServer::LendMemory() {
  RawCommand command;
  if (absl::Status status = queue_pair_->ReceiveOne(command); !status.ok()) return status;
  const absl::StatusOr<fabric::Granted> granted = queue_pair_->Grant();
  if (!granted.ok()) return granted.status();
  const RawReport report = {.address = granted->address, .rkey = granted->rkey};
  if (absl::Status status = queue_pair_->SendOne(report); !status.ok()) return status;
  RawCommand second;
  const absl::Status ended = queue_pair_->ReceiveOne(second);
  return ended.ok() ? absl::DataLossError("the client of a raw queue pair asked twice for memory") : ended;
}

absl::Status RawServer::ServeReads() {
  while (true) {
    RawCommand command;
    if (absl::Status status = queue_pair_->ReceiveOne(command); !status.ok()) return status;
    if (command.reads_max < 1 || command.time_ns < 0) {
      return absl::DataLossError("the client of a raw queue pair asked for a run of READs that is none");
    }
    const absl::Duration time = std::min(absl::Nanoseconds(command.time_ns), kRawReadsTimeMax);
    const auto reads = queue_pair_->Operate({command.address, command.rkey}, command.reads_max, time);
    if (!reads.ok()) return reads.status();
    if (absl::Status status = queue_pair_->SendOne(RawReport{.reads = *reads}); !status.ok()) return status;
  }
}

}  // namespace hawser::transport
