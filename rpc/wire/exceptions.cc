#include "hawser/rpc/wire/exceptions.h"

#include <cstring>
#include <exception>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/log/log.h"
#include "hawser/transport/log/peer_log.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

absl::string_view Description(const kj::Exception& exception) {
  const kj::StringPtr description = exception.getDescription();
  return {description.begin(), description.size()};
}

// The cause of a kj::Exception.
enum class Cause {
  kMalformed,       // A message is not encoded as its schema says.
  kTraversalLimit,  // ReadLimits::traversal_factor, nesting_max.
  kNestingLimit,
  kTooLargeToBuild,  // A builder was asked for more than Cap'n Proto can hold.
  kOther,            // A KJ_REQUIRE of the application, for example.
};

// The file of an exception that is thrown here as Cap'n Proto throws it.
constexpr char kLikeCapnp[] = "capnp/ (as thrown by Hawser)";
constexpr absl::string_view kTraversalLimitText = "Exceeded message traversal limit";

// Cap'n Proto throws one type for all of these: only source file and text distinguish them. exceptions_test
// provokes each.
Cause CauseOf(const kj::Exception& exception) {
  const absl::string_view what = Description(exception);
  // Checked arithmetic of sizes. Only builders overflow it: a reader's sizes have 29 bits.
  if (std::strstr(exception.getFile(), "kj/units") != nullptr) return Cause::kTooLargeToBuild;
  // A KJ_REQUIRE of the application names another file.
  if (std::strstr(exception.getFile(), "capnp/") == nullptr) return Cause::kOther;
  if (absl::StrContains(what, kTraversalLimitText)) return Cause::kTraversalLimit;
  if (absl::StrContains(what, "too deeply-nested")) return Cause::kNestingLimit;
  for (const absl::string_view text : {"blob too big", "list with too many elements",
                                       "larger than max segment size", "exceeds maximum segment size"}) {
    if (absl::StrContains(what, text)) return Cause::kTooLargeToBuild;
  }
  return Cause::kMalformed;
}

constexpr absl::string_view kTraversalText =
    "reading the message went beyond ReadLimits::traversal_factor (ServerOptions::read, "
    "ChannelOptions::read). Each look at a field counts its size again: keep what the getter returned in a "
    "variable, or raise the factor. If each field is looked at once, the peer sent a message that is small "
    "but costly to read";

constexpr absl::string_view kNestingText =
    "the message is nested deeper than ReadLimits::nesting_max (ServerOptions::read, ChannelOptions::read) "
    "allows, or refers to itself. Raise the limit if the schema needs it";

// ResourceExhausted: a limit of the reading side was reached. The message may be well-formed, and the reader
// may be the cause, so neither InvalidArgument nor DataLoss fits.
absl::Status StatusOfLimit(Cause cause) {
  return absl::ResourceExhaustedError(cause == Cause::kTraversalLimit ? kTraversalText : kNestingText);
}

absl::Status StatusOfTooLarge(absl::string_view builder, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(builder,
                   " built a value larger than Cap'n Proto can hold: a Data has at most 536870911 bytes "
                   "(512 MiB - 1), a Text one less, a list 536870911 elements in 4 GiB. Divide it among "
                   "several fields or calls (Cap'n Proto: ",
                   what, ")"));
}

// In the place of the text of an exception, which may name what a peer must not know: a file, a query, a
// password.
constexpr absl::string_view kTextIsLogged = "its text is in the log of that process";

// `who`: the code that threw it. `what`: its description, or kTextIsLogged.
absl::Status ToStatus(absl::string_view who, const kj::Exception& exception, absl::string_view what) {
  const std::string text = absl::StrCat(who, " threw kj::Exception: ", what);
  switch (exception.getType()) {
    case kj::Exception::Type::UNIMPLEMENTED:
      return absl::UnimplementedError(text);
    case kj::Exception::Type::OVERLOADED:
    case kj::Exception::Type::DISCONNECTED:
      return absl::UnavailableError(text);
    case kj::Exception::Type::FAILED:
      break;
  }
  switch (const Cause cause = CauseOf(exception)) {
    case Cause::kMalformed:
      return absl::InvalidArgumentError(
          absl::StrCat("malformed message (the request, unless ", who, " reads others): ", what));
    case Cause::kTraversalLimit:
    case Cause::kNestingLimit:
      return StatusOfLimit(cause);
    case Cause::kTooLargeToBuild:
      return StatusOfTooLarge(who, what);
    case Cause::kOther:
      break;
  }
  return absl::InternalError(text);
}

// Whether the exception being handled was thrown while reading a message.
bool IsOfAMessage() {
  try {
    throw;
  } catch (const kj::Exception& exception) {
    const Cause cause = CauseOf(exception);
    return exception.getType() == kj::Exception::Type::FAILED && cause != Cause::kOther &&
           cause != Cause::kTooLargeToBuild;
  } catch (...) {
    return false;
  }
}

}  // namespace

absl::Status StatusOfException(absl::string_view who) {
  try {
    throw;
  } catch (const kj::Exception& exception) {
    return ToStatus(who, exception, Description(exception));
  } catch (const std::exception& exception) {
    return absl::InternalError(absl::StrCat(who, " threw: ", exception.what()));
  } catch (...) {
    return absl::InternalError(absl::StrCat(who, " threw something that is no std::exception"));
  }
}

absl::Status StatusOfExceptionForPeer(absl::string_view who) {
  try {
    throw;
  } catch (const kj::Exception& exception) {
    return ToStatus(who, exception, kTextIsLogged);
  } catch (...) {
    return absl::InternalError(absl::StrCat(who, " threw an exception: ", kTextIsLogged));
  }
}

absl::Status StatusOfMalformed(const kj::Exception& exception) {
  switch (const Cause cause = CauseOf(exception)) {
    case Cause::kTraversalLimit:
    case Cause::kNestingLimit:
      return StatusOfLimit(cause);
    case Cause::kTooLargeToBuild:
      return StatusOfTooLarge("the code that reads the message", Description(exception));
    case Cause::kMalformed:
    case Cause::kOther:
      break;
  }
  return absl::DataLossError(absl::StrCat("malformed message: ", Description(exception)));
}

void ThrowTraversalLimit() { ThrowMalformed(kTraversalLimitText); }

void ThrowMalformed(absl::string_view what) {
  kj::throwFatalException(kj::Exception(kj::Exception::Type::FAILED, kLikeCapnp, __LINE__,
                                        kj::heapString(what.data(), what.size())));
}

void ReportException(absl::string_view what, absl::string_view whose) {
  const absl::Status thrown = StatusOfException("it");
  transport::PeerLog::Process().Line(
      LogSeverity::kError, whose,
      absl::StrCat(what, " ", whose,
                   " let an exception escape; going on without it: ", absl::string_view(thrown.message())));
}

namespace {

// What a handler throws after its call was answered is only logged. With the answer the request ends, so
// Cap'n Proto finds a message that is empty, which is no fault of the peer's.
absl::Status ReportLateException(absl::string_view method, absl::string_view peer, absl::string_view id) {
  const std::string which = absl::StrCat("the handler of ", method, ", call ", id, " of ", peer, ", ");
  const std::string what =
      IsOfAMessage()
          ? "used its request or reply after it had been answered: they end with DeferredCall::Finish()"
          : absl::StrCat("threw after it had been answered: ",
                         absl::string_view(StatusOfException("the handler").message()));
  transport::PeerLog::Process().Line(
      LogSeverity::kError, method,
      absl::StrCat(which, what, "; its caller has the answer, and notices nothing"));
  return absl::InternalError(absl::StrCat("the handler of ", method, " had answered before it threw"));
}

}  // namespace

absl::Status StatusOfHandlersException(absl::string_view method, absl::string_view peer, absl::string_view id,
                                       bool answered) {
  if (answered) return ReportLateException(method, peer, id);
  const absl::Status thrown = StatusOfException("the handler");
  absl::Status for_peer = StatusOfExceptionForPeer(absl::StrCat("the handler of ", method));
  const std::string line = absl::StrCat("the handler of ", method, ", call ", id, " of ", peer,
                                        ", threw, which is ", absl::StatusCodeToString(thrown.code()),
                                        " for its caller: ", absl::string_view(thrown.message()));
  transport::PeerLog& log = transport::PeerLog::Process();
  // Counts against the peer, which sent the malformed message and can send any number of them.
  if (IsOfAMessage()) {
    const absl::StatusOr<transport::Uri> uri = transport::ParseUri(peer);
    if (uri.ok()) {
      const absl::StatusOr<SocketAddress> address = transport::ParseNumericHost(uri->host);
      if (address.ok()) {
        log.Line(LogSeverity::kError, *address, line);
        return for_peer;
      }
    }
  }
  log.Line(LogSeverity::kError, method, line);
  return for_peer;
}

}  // namespace hawser::internal
