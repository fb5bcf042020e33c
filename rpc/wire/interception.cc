#include "hawser/rpc/wire/interception.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/wire/called_codes.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/transport/log/peer_log.h"

namespace hawser::internal {

absl::Status CheckInterceptors(const Interceptors& interceptors, absl::string_view option) {
  if (std::find(interceptors.begin(), interceptors.end(), nullptr) == interceptors.end()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(option, ": one of them is null"));
}

absl::Status Interception::Begin(const Interceptors& interceptors, Interceptor::Beginning call) {
  for (const std::shared_ptr<Interceptor>& each : interceptors) {
    // The interceptor before may have added to it.
    if (call.side == Interceptor::Side::kClient) call.metadata = call.outgoing_metadata.view();
    try {
      absl::StatusOr<std::unique_ptr<Interceptor::Call>> begun = each->Begin(call);
      if (!begun.ok()) return begun.status();
      if (*begun != nullptr) begun_.push_back(*std::move(begun));
    } catch (...) {
      absl::Status status = StatusOfExceptionForPeer(absl::StrCat("an interceptor of ", call.method.name));
      transport::PeerLog::Process().Line(
          LogSeverity::kError, call.method.name,
          absl::StrCat("for a call of ", call.method.name, " of ", call.peer_address, ", ",
                       absl::string_view(StatusOfException("an interceptor").message())));
      return status;
    }
  }
  return absl::OkStatus();
}

void Interception::End(transport::Poller& poller, const char* method, const absl::Status& status) {
  std::optional<transport::Poller::CallOut> out;
  // Otherwise other code of the application is running, and the poller keeps its name.
  if (poller.Held() && !poller.called_out().inside()) out.emplace(poller, kInterceptor, method);
  while (begun()) {
    const std::unique_ptr<Interceptor::Call> last = std::move(begun_.back());
    begun_.pop_back();
    CallUser(kInterceptor.name, method, [&] { last->OnEnd(status); });
  }
}

}  // namespace hawser::internal
