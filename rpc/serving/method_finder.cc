#include "hawser/rpc/serving/method_finder.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/status.h"

namespace hawser::internal {

absl::Status MethodFinder::Unimplemented(const Serving& serving, uint64_t interface_id, uint16_t ordinal) {
  // Only callers that may call a method learn that it exists, and `authorize` knows methods, not interfaces.
  if (serving.authorize) return UnservedError("the server implements no such method");
  if (const absl::string_view name = serving.methods.InterfaceName(interface_id); !name.empty()) {
    return UnservedError(
        absl::StrCat("the server's ", name, " has no method @", ordinal, ": the caller's schema is newer"));
  }
  const std::string names = serving.methods.InterfaceNames();
  return UnservedError(
      absl::StrCat("the server implements no interface 0x", absl::Hex(interface_id, absl::kZeroPad16),
                   "; it implements: ", names.empty() ? "none" : names, ". Was the service given to ",
                   serving.gate != nullptr ? "ChannelOptions::services?" : "AddService()?"));
}

}  // namespace hawser::internal
