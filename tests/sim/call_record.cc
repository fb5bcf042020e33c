#include "hawser/tests/sim/call_record.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/rpc/status.h"
#include "hawser/tests/sim/dice.h"

namespace hawser::sim {

bool CallRecord::RanTo(Execution::End end) const {
  return std::any_of(runs.begin(), runs.end(), [end](const Execution* run) { return run->end == end; });
}

std::string CallRecord::CheckAnswer(const Reply<ledger::Entry>& reply) const {
  const auto got = reply->getBytes();
  const std::string expected = PatternOf(~id, answer_bytes);
  if (reply->getId() != id || got.size() != expected.size() ||
      std::memcmp(got.begin(), expected.data(), expected.size()) != 0) {
    return absl::StrCat("call ", id, " got a wrong answer");
  }
  if (!RanTo(Execution::End::kAnswered)) return absl::StrCat("call ", id, " got an answer that nobody gave");
  return CheckMetadata(reply.metadata());
}

std::string CallRecord::CheckFailure(const absl::Status& status, int64_t now_ns) const {
  if (demanded) return absl::StrCat("on a good day call ", id, " ended with ", status.ToString());
  if (!WasSent(status) && !runs.empty()) {
    return absl::StrCat("call ", id, " ended as not sent, but has run: ", status.ToString());
  }
  // The server may answer Unavailable, but the channel itself must wait for the next connection.
  if (wait_for_ready && absl::IsUnavailable(status) &&
      absl::EndsWith(status.message(), "; it was not sent")) {
    return absl::StrCat("call ", id, ", which was to wait for a connection, did not: ", status.ToString());
  }
  // An error that is sent while memory is short goes without.
  const Metadata metadata = MetadataOf(status);
  if (!metadata.empty() && !CheckMetadata(metadata.view()).empty()) return CheckMetadata(metadata.view());
  const bool late = deadline_ns <= now_ns;
  bool allowed = false;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
      allowed = true;
      break;
    case absl::StatusCode::kDeadlineExceeded:
      allowed = late;
      break;
    case absl::StatusCode::kCancelled:
      allowed = cancelled || closed || late;
      break;
    case absl::StatusCode::kAborted:
      allowed = RanTo(Execution::End::kRefused);
      break;
    case absl::StatusCode::kInternal:
      allowed = RanTo(Execution::End::kThrew) || RanTo(Execution::End::kDropped);
      break;
    default:
      break;
  }
  return allowed ? "" : absl::StrCat("call ", id, " ended with ", status.ToString());
}

Metadata CallRecord::MakeMetadata() const {
  return {{"call", absl::StrCat(id)}, {"pattern", PatternOf(id, id % 4 == 0 ? 6000 : 40)}};
}

std::string CallRecord::CheckMetadata(MetadataView metadata) const {
  const Metadata expected = has_metadata ? MakeMetadata() : Metadata();
  return metadata.bytes() == expected.view().bytes() ? "" : absl::StrCat("call ", id, " has wrong metadata");
}

std::string CallRecord::CheckRuns() const {
  const size_t most = once ? 1 : kRunsMax;
  return runs.size() <= most ? "" : absl::StrCat("call ", id, " ran ", runs.size(), " times");
}

std::string PatternOf(uint64_t id, size_t bytes) {
  Dice dice(id);
  std::string pattern(bytes, '\0');
  for (size_t i = 0; i < bytes; i += sizeof(uint64_t)) {
    const uint64_t word = dice.Next();
    std::memcpy(pattern.data() + i, &word, std::min(sizeof(word), bytes - i));
  }
  return pattern;
}

}  // namespace hawser::sim
