#include "hawser/transport/poller/called_out.h"

#include "absl/strings/str_cat.h"

namespace hawser::transport {

std::string ToString(const CallId& id) {
  return absl::StrCat(id.connection, ":", id.slot, ".", id.generation);
}

std::string Describe(const CalledOut::Call& call) { return absl::StrCat(call.what->name, " ", call.whose); }

std::string DescribeWithId(const CalledOut::Call& call) {
  std::string text = Describe(call);
  if (call.id.connection != 0) absl::StrAppend(&text, ", call ", ToString(call.id));
  return text;
}

std::string RoughDuration(absl::Duration duration) {
  const int64_t centiseconds = duration / absl::Milliseconds(10);
  if (centiseconds < 100) return absl::StrCat(centiseconds * 10, " ms");
  const int64_t hundredths = centiseconds >= 1000 ? 0 : centiseconds % 100;
  std::string text = absl::StrCat(centiseconds / 100);
  if (hundredths != 0) absl::StrAppend(&text, ".", absl::Dec(hundredths, absl::kZeroPad2));
  return absl::StrCat(text, " s");
}

}  // namespace hawser::transport
