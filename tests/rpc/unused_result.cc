// For unused_result_test.sh: which lines warn that a result is not used.
#include "hawser/rpc/dynamic_call.h"
#include "hawser/rpc/executor.h"
#include "hawser/rpc/first_of.h"
#include "hawser/rpc/sleep.h"
#include "hawser/rpc/task.h"
#include "tests/rpc/probe.rpc.h"

namespace hawser {

void Calls(const probe::ProbeStub& stub, DynamicCall& dynamic, ServerContext& context) {
  stub.Act();                        // warns
  stub.Act().Send();                 // warns
  stub.Act({.timeout = {}}).Send();  // warns
  dynamic.Send();                    // warns
  context.Defer();                   // warns
  stub.Act().Send().Forget();
  stub.Act().Send().Then([](auto) {});
  dynamic.Send().Forget();
  (void)stub.Act().Send();
  auto pending = stub.Act().Send();
  pending.Cancel();
}

Task Coroutine(DeferredCall call, Executor& executor) {
  Sleep(call.context(), absl::Seconds(2));  // warns
  executor.Schedule();                      // warns
  (void)co_await Sleep(call.context(), absl::Seconds(2));
  (void)co_await executor.Schedule();
  co_return absl::OkStatus();
}

}  // namespace hawser
