#ifndef HAWSER_RPC_WIRE_INTERCEPTION_H_
#define HAWSER_RPC_WIRE_INTERCEPTION_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/transport/poller/poller.h"

namespace hawser::internal {

using Interceptors = std::vector<std::shared_ptr<Interceptor>>;

// InvalidArgument: one of the interceptors that `option` ("ServerOptions::interceptors") has is null.
absl::Status CheckInterceptors(const Interceptors& interceptors, absl::string_view option);

// What the interceptors of one call have begun.
// Thread: any, one at a time.
class Interception {
 public:
  // Not OK: an interceptor refused the call. End() follows in either case.
  absl::Status Begin(const Interceptors& interceptors, Interceptor::Beginning call);
  // `call`: as if an interceptor before the others had begun it. nullptr: none.
  void Adopt(std::unique_ptr<Interceptor::Call> call) {
    if (call != nullptr) begun_.push_back(std::move(call));
  }
  bool begun() const { return !begun_.empty(); }
  // Calls OnEnd() of those that have begun, each once. `poller`: that of the call, on which this thread may
  // be.
  void End(transport::Poller& poller, const char* method, const absl::Status& status);

 private:
  std::vector<std::unique_ptr<Interceptor::Call>> begun_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_WIRE_INTERCEPTION_H_
