#include "hawser/rpc/serving/connection_reporter.h"

#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/rpc/serving/server_call.h"
#include "hawser/rpc/serving/serving_connection.h"
#include "hawser/transport/poller/called_out.h"

namespace hawser::internal {
namespace {

void DescribeState(const transport::Connection& connection, ConnectionReport& report) {
  report.state = connection.StateName();
  report.slots = connection.agreed().slots;
  report.slots_given = connection.slots_given();
  report.slots_wanted = connection.slots_wanted();
  report.receives_posted = connection.receives_posted();
}

}  // namespace

CallReport ConnectionReporter::ReportOf(const ServerCall& call, HandlerStage stage, int64_t now_ns) const {
  return {.method = call.method().name,
          .peer = of_.peer_address_,
          .identity = of_.IdentityText(),
          .stage = NameOf(stage),
          .age_ns = now_ns - call.started_ns(),
          .deadline_in_ns = call.deadline_ns() == transport::kNever ? -1 : call.deadline_ns() - now_ns,
          .request_bytes = call.request_bytes(),
          .id = call.Id()};
}

void ConnectionReporter::AddTo(PollerReport& report, uint64_t receive_bytes, int64_t since_unix_ns) const {
  of_.poller_.AssertHeld();
  ConnectionReport mine = {.state = "closed",
                           .receive_bytes = receive_bytes,
                           .since_unix_ns = since_unix_ns,
                           .requests = of_.requests_,
                           .number = of_.number_};
  const bool is_idle = of_.busy_ == 0;
  const int64_t now_ns = is_idle ? 0 : of_.poller_.environment().NowNs();
  for (size_t slot = 0; !is_idle && slot < of_.by_slot_.size(); ++slot) {
    const ServerCall* const call = of_.by_slot_[slot];
    if (call == nullptr) continue;
    ++mine.slots_in_use;
    ++report.running[call->method().name];
    const HandlerStage stage = call->stage();
    if (stage == HandlerStage::kQueued) ++report.calls_queued;
    if (report.WantsCall(now_ns - call->started_ns())) report.AddCall(ReportOf(*call, stage, now_ns));
  }
  if (of_.connection_ != nullptr) DescribeState(*of_.connection_, mine);
  report.Count(mine);
  if (report.connections.size() >= PollerReport::kConnectionsMax) return;
  mine.peer = of_.peer_address_;
  mine.identity = of_.IdentityText();
  report.connections.push_back(std::move(mine));
}

std::vector<std::string> ConnectionReporter::DescribeCalls(HandlerStage stage) const {
  of_.poller_.AssertHeld();
  std::vector<std::string> texts;
  for (const auto& call : of_.calls_) {
    if (call->is_free() || call->stage() != stage) continue;
    const absl::Duration age = absl::Nanoseconds(of_.poller_.now_ns() - call->started_ns());
    texts.push_back(
        absl::StrCat(call->method().name, ", ", call->Name(), ", ", transport::RoughDuration(age), " old"));
  }
  return texts;
}

}  // namespace hawser::internal
