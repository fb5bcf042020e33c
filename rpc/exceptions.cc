#include "hawser/rpc/exceptions.h"

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/peer_text.h"

namespace hawser::internal {
namespace {

absl::string_view Description(const kj::Exception& exception) {
  const kj::StringPtr description = exception.getDescription();
  return {description.begin(), description.size()};
}

// Cap'n Proto's own checks are thrown from its sources; a KJ_REQUIRE of the application has another file.
bool ThrownByCapnProto(const kj::Exception& exception) {
  return std::strstr(exception.getFile(), "capnp/") != nullptr;
}

absl::Status ToStatus(const kj::Exception& exception) {
  const absl::string_view what = Description(exception);
  switch (exception.getType()) {
    case kj::Exception::Type::UNIMPLEMENTED:
      return absl::UnimplementedError(what);
    case kj::Exception::Type::OVERLOADED:
    case kj::Exception::Type::DISCONNECTED:
      return absl::UnavailableError(what);
    case kj::Exception::Type::FAILED:
      break;
  }
  if (ThrownByCapnProto(exception))
    return absl::InvalidArgumentError(absl::StrCat("malformed message: ", what));
  return absl::InternalError(absl::StrCat("the handler threw kj::Exception: ", what));
}

}  // namespace

absl::Status StatusOfException() {
  try {
    throw;
  } catch (const kj::Exception& exception) {
    return ToStatus(exception);
  } catch (const std::exception& exception) {
    return absl::InternalError(absl::StrCat("the handler threw: ", exception.what()));
  } catch (...) {
    return absl::InternalError("the handler threw something that is no std::exception");
  }
}

absl::Status StatusOfMalformed(const kj::Exception& exception) {
  return absl::DataLossError(absl::StrCat("malformed message: ", Description(exception)));
}

void ReportException(absl::string_view what, absl::string_view whose) {
  const std::string line = absl::StrCat(
      "hawser: ", what, " ", whose,
      " let an exception escape; going on without it: ", EscapePeerText(StatusOfException().message()), "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace hawser::internal
