#include "hawser/measure/verbs/raw_plan.h"

#include <string.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {
namespace {

struct RawGreeting {
  RawToken token = {};
  uint32_t kind = 0;
  uint32_t depth = 0;
  uint64_t bytes = 0;
  uint64_t answer_bytes = 0;
};
static_assert(std::has_unique_object_representations_v<RawGreeting> && sizeof(RawGreeting) == 40);
static_assert(sizeof(RawGreeting) <= fabric::kConnectPrivateDataMax);

}  // namespace

absl::Status RawPlan::Check() const {
  const auto refused = [](absl::string_view what, uint64_t value, uint64_t most) {
    return absl::InvalidArgumentError(
        absl::StrCat("raw queue pair: ", what, " ", value, ": 1 to ", most, " are possible"));
  };
  if (kind < Kind::kExchange || kind > Kind::kClientFetchAdds) {
    return absl::InvalidArgumentError(
        absl::StrCat("raw queue pair: this server knows no kind ", static_cast<uint32_t>(kind)));
  }
  if (kind == Kind::kClientFetchAdds && bytes != 8) {
    return absl::InvalidArgumentError(absl::StrCat("raw queue pair: a fetch-and-add of ", bytes, " bytes"));
  }
  if (depth < 1 || depth > kDepthMax) return refused("depth", depth, kDepthMax);
  for (const uint64_t each : {bytes, answer_bytes}) {
    if (each < 1 || each > kBytesMax) return refused("bytes", each, kBytesMax);
    if (depth * each > kInFlightBytesMax) return refused("bytes in flight", depth * each, kInFlightBytesMax);
  }
  return absl::OkStatus();
}

uint32_t RawPlan::DepthFor(uint64_t bytes, uint32_t wanted) {
  const uint64_t fit = kInFlightBytesMax / std::max<uint64_t>(bytes, 1);
  return static_cast<uint32_t>(std::clamp<uint64_t>(fit, 1, std::clamp<uint32_t>(wanted, 1, kDepthMax)));
}

std::string EncodeRawGreeting(const RawToken& token, const RawPlan& plan) {
  const RawGreeting greeting = {.token = token,
                                .kind = static_cast<uint32_t>(plan.kind),
                                .depth = plan.depth,
                                .bytes = plan.bytes,
                                .answer_bytes = plan.answer_bytes};
  return std::string(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
}

std::optional<RawPlan> DecodeRawGreeting(absl::string_view private_data, const RawToken& token) {
  RawGreeting greeting;
  if (private_data.size() < sizeof(greeting)) return std::nullopt;
  memcpy(&greeting, private_data.data(), sizeof(greeting));
  uint8_t difference = 0;
  for (size_t i = 0; i < token.size(); ++i) difference |= greeting.token[i] ^ token[i];
  if (difference != 0) return std::nullopt;
  return RawPlan{.kind = static_cast<RawPlan::Kind>(greeting.kind),
                 .depth = greeting.depth,
                 .bytes = greeting.bytes,
                 .answer_bytes = greeting.answer_bytes};
}

}  // namespace hawser::transport
