// READs memory that examples/echo/echo_server shares (services/perf), a number at a time: what
// bench/instructions.py counts.
#include <stdio.h>
#include <stdlib.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "examples/worker.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/runtime.h"
#include "hawser/rpc/shared_memory.h"

ABSL_FLAG(std::string, target, "", "the server: tcp://HOST:PORT");
ABSL_FLAG(uint64_t, count, 1000, "READs");
ABSL_FLAG(uint64_t, size, 32, "bytes of each");
ABSL_FLAG(uint64_t, in_flight, 1, "READs at a time");
ABSL_FLAG(std::string, polling, "sleep", "how it waits for answers: sleep, the only one");

namespace hawser::bench {
namespace {

[[noreturn]] void Die(const absl::Status& why) {
  fprintf(stderr, "read_client: %s\n", why.ToString().c_str());
  exit(1);
}

// Workers, each with one READ in flight, share those that are left.
struct Work {
  Work(uint64_t count, uint64_t in_flight)
      : left(static_cast<int64_t>(count)), workers(static_cast<int>(in_flight)) {}

  std::atomic<int64_t> left;
  absl::BlockingCounter workers;
  absl::Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);  // The first failure.
};

examples::Worker ReadOn(RemoteMemory& remote, absl::Span<uint8_t> into, Work& work) {
  absl::Status status;
  while (status.ok() && work.left.fetch_sub(1, std::memory_order_relaxed) > 0) {
    into.front() = into.back() = 0;
    auto read = remote.Read(0, into);
    status = co_await std::move(read);
    if (status.ok() && (into.front() != 'g' || into.back() != 'g')) {
      status = absl::DataLossError("the memory has other bytes than it should");
    }
  }
  {
    absl::MutexLock lock(&work.mutex);
    work.status.Update(status);
  }
  work.workers.DecrementCount();
}

void Run() {
  const std::string target = absl::GetFlag(FLAGS_target);
  const uint64_t size = absl::GetFlag(FLAGS_size), in_flight = absl::GetFlag(FLAGS_in_flight);
  RuntimeOptions waits;
  waits.poller.mode = PollingMode::kSleep;
  absl::StatusOr<std::shared_ptr<Runtime>> runtime =
      Runtime::Create(target.substr(0, target.find("://")), waits);
  if (!runtime.ok()) Die(runtime.status());
  ChannelOptions options;
  options.runtime = *std::move(runtime);
  const auto channel = Channel::Connect(target, std::move(options));
  if (!channel.ok()) Die(channel.status());
  auto call = perf::PerfStub(*channel).Share();
  call.request().setAccess(static_cast<uint8_t>(Access::kRead));
  const auto shared = call.Send().Wait();
  if (!shared.ok()) Die(shared.status());
  RemoteMemory remote(*channel, (*shared)->getMemory());
  absl::StatusOr<Buffer> local = (*channel)->AllocateBuffer(size * in_flight);
  if (!local.ok()) Die(local.status());
  Work work(absl::GetFlag(FLAGS_count), in_flight);
  for (uint64_t i = 0; i < in_flight; ++i) ReadOn(remote, {local->data() + i * size, size}, work);
  work.workers.Wait();
  absl::MutexLock lock(&work.mutex);
  if (!work.status.ok()) Die(work.status);
}

}  // namespace
}  // namespace hawser::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  hawser::bench::Run();
}
