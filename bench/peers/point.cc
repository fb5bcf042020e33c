#include "hawser/bench/peers/point.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hawser::bench::peers {
namespace {

absl::Status Wrong(absl::string_view field, absl::string_view value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, " '", value, "' is not ", expected));
}

absl::StatusOr<int64_t> ParseNumber(absl::string_view field, absl::string_view text, int64_t max) {
  int64_t number;
  if (!absl::SimpleAtoi(text, &number) || number < 1 || number > max) {
    return Wrong(field, text, absl::StrCat("a number from 1 to ", max));
  }
  return number;
}

absl::Status CheckTogether(const Point& point) {
  const Load& load = point.load;
  if (load.in_flight < load.connections) {
    return absl::InvalidArgumentError(absl::StrCat("IN_FLIGHT ", load.in_flight, " is less than CONNECTIONS ",
                                                   load.connections, ": some would have no call"));
  }
  if (point.workload != "echo" && load.in_flight != 1) {
    return Wrong("IN_FLIGHT", absl::StrCat(load.in_flight), "1, as paced and bulk need it");
  }
  if ((point.workload == "paced") != (point.rate > 0)) {
    return Wrong("RATE", absl::StrCat(point.rate), "above 0 for paced and 0 for others");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Pin> ParsePlace(absl::string_view text) {
  if (text == "1") return Pin::kOneCore;
  if (text == "2") return Pin::kTwoCores;
  if (text == "any") return Pin::kAnyCore;
  return Wrong("PLACE", text, "1, 2 or any");
}

absl::StatusOr<Point> ParsePoint(absl::string_view text) {
  const std::vector<absl::string_view> fields = absl::StrSplit(text, ':');
  if (fields.size() != 6) {
    return Wrong("POINT", text, "WORKLOAD:PLACE:BYTES:IN_FLIGHT:CONNECTIONS:RATE, such as echo:2:32:64:1:0");
  }
  Point point;
  point.text = std::string(text);
  point.workload = std::string(fields[0]);
  if (point.workload != "echo" && point.workload != "paced" && point.workload != "bulk") {
    return Wrong("WORKLOAD", fields[0], "echo, paced or bulk");
  }
  point.place = std::string(fields[1]);
  const absl::StatusOr<Pin> pin = ParsePlace(fields[1]);
  if (!pin.ok()) return pin.status();
  const absl::StatusOr<int64_t> bytes = ParseNumber("BYTES", fields[2], 1 << 30);
  if (!bytes.ok()) return bytes.status();
  const absl::StatusOr<int64_t> in_flight = ParseNumber("IN_FLIGHT", fields[3], 1 << 20);
  if (!in_flight.ok()) return in_flight.status();
  const absl::StatusOr<int64_t> connections = ParseNumber("CONNECTIONS", fields[4], 1 << 14);
  if (!connections.ok()) return connections.status();
  if (!absl::SimpleAtod(fields[5], &point.rate) || !(point.rate >= 0) || !std::isfinite(point.rate)) {
    return Wrong("RATE", fields[5], "a number of calls a second, or 0");
  }
  point.pin = *pin;
  point.load.bytes = static_cast<size_t>(*bytes);
  point.load.in_flight = static_cast<int>(*in_flight);
  point.load.connections = static_cast<int>(*connections);
  if (absl::Status status = CheckTogether(point); !status.ok()) return status;
  return point;
}

}  // namespace hawser::bench::peers
