// Calls echo_server: once with a message, or many times to measure the speed.

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "examples/echo/echo.rpc.h"
#include "examples/histogram.h"
#include "examples/tls_flags.h"
#include "examples/worker.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/runtime.h"

namespace {

constexpr char kProgram[] = "echo_client";
constexpr char kUsage[] =
    "echo_client --target=tcp://HOST:PORT (--message=TEXT | --count=N [--size=32] [--in_flight=1])\n"
    "            [--polling=adaptive|spin|sleep]\n"
    "            [--tls_certificate=FILE --tls_key=FILE --tls_authorities=FILE [--tls_server_name=NAME]]\n"
    "  --message    is sent, and what comes back printed\n"
    "  --count      so many calls, of --size bytes each, --in_flight at a time; prints how fast they were\n"
    "  --polling    how it waits for answers: it spins while that pays off, always, or never\n"
    "  --tls_...    PEM files; with them both sides show a certificate, and tcp:// is encrypted (rdma:// is "
    "not)";

capnp::Data::Reader Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::string_view Text(capnp::Data::Reader bytes) {
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

// Makes one call and waits for it.
absl::Status EchoOnce(const echo::EchoStub& stub, const std::string& message) {
  auto call = stub.Echo();
  call.request().setMessage(Bytes(message));
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  std::cout << Text((*reply)->getMessage()) << std::endl;
  return absl::OkStatus();
}

// Many calls: a number of workers, each with one call in flight, share the remaining calls.
struct Load {
  Load(uint64_t count, uint64_t size_bytes, uint64_t in_flight)
      : message(size_bytes, 'x'), left(static_cast<int64_t>(count)), workers(static_cast<int>(in_flight)) {}

  const std::string message;
  std::atomic<int64_t> left;
  absl::BlockingCounter workers;
  absl::Mutex mutex;
  examples::Histogram latencies ABSL_GUARDED_BY(mutex);
  absl::Status status ABSL_GUARDED_BY(mutex);  // The first failure.
};

examples::Worker Work(echo::EchoStub stub, Load* load) {
  examples::Histogram latencies;
  absl::Status status;
  while (status.ok() && load->left.fetch_sub(1) > 0) {
    const int64_t start_ns = absl::GetCurrentTimeNanos();
    auto call = stub.Echo();
    call.request().setMessage(Bytes(load->message));
    auto echo = call.Send();
    auto reply = co_await std::move(echo);
    latencies.AddNs(absl::GetCurrentTimeNanos() - start_ns);
    status = reply.status();
    if (status.ok() && Text((*reply)->getMessage()) != load->message) {
      status = absl::DataLossError("the answer is not what was sent");
    }
  }
  {
    absl::MutexLock lock(&load->mutex);
    load->latencies.Merge(latencies);
    load->status.Update(status);
  }
  load->workers.DecrementCount();
}

absl::Status EchoMany(const echo::EchoStub& stub, uint64_t count, uint64_t size_bytes, uint64_t in_flight) {
  Load load(count, size_bytes, in_flight);
  const absl::Time start = absl::Now();
  for (uint64_t i = 0; i < in_flight; ++i) Work(stub, &load);
  load.workers.Wait();
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  absl::MutexLock lock(&load.mutex);
  if (!load.status.ok()) return load.status;
  std::cout << absl::StrFormat("%d calls of %d bytes in %.2f s, %.0f calls/s, %s", count, size_bytes, seconds,
                               static_cast<double>(count) / seconds, load.latencies.ToString())
            << std::endl;
  return absl::OkStatus();
}

// Unless it is adaptive, a runtime of the channel's own says how it waits.
absl::StatusOr<std::shared_ptr<hawser::Channel>> Connect(const std::string& target, size_t polling,
                                                         hawser::ChannelOptions channel) {
  if (polling == 0) return hawser::Channel::Connect(target, std::move(channel));
  hawser::RuntimeOptions options;
  options.poller.mode = polling == 1 ? hawser::PollingMode::kSpin : hawser::PollingMode::kSleep;
  absl::StatusOr<std::shared_ptr<hawser::Runtime>> runtime =
      hawser::Runtime::Create(target.substr(0, target.find("://")), options);
  if (!runtime.ok()) return runtime.status();
  channel.runtime = *std::move(runtime);
  return hawser::Channel::Connect(target, std::move(channel));
}

}  // namespace

int main(int argc, char** argv) {
  std::string target, message;
  uint64_t count = 0, size_bytes = 32, in_flight = 1;
  size_t polling = 0;
  examples::FlagSet flags;
  flags.Text("target", &target).Text("message", &message).Number("count", 1, INT64_MAX, &count);
  flags.Bytes("size", 0, 256 << 20, &size_bytes).Number("in_flight", 1, 4096, &in_flight);
  flags.Choice("polling", {"adaptive", "spin", "sleep"}, &polling);
  examples::TlsFlags tls;
  tls.AddForClientTo(flags);
  const auto line = examples::CommandLine::Split({argv + 1, argv + argc});
  if (examples::WantsHelp(line)) {
    std::cout << "usage: " << kUsage << std::endl;
    return 0;
  }
  absl::Status usage = flags.Apply(line);
  if (usage.ok() && !line.words.empty()) {
    usage = absl::InvalidArgumentError(absl::StrCat("do not know what to do with \"", line.words[0], "\""));
  }
  if (usage.ok() && target.empty()) usage = absl::InvalidArgumentError("no --target: which server?");
  if (usage.ok() && message.empty() == (count == 0)) {
    usage = absl::InvalidArgumentError("it needs one of --message and --count");
  }
  hawser::ChannelOptions options;
  if (const auto credentials = tls.Credentials(); credentials.ok()) {
    options.credentials = *credentials;
  } else {
    usage.Update(credentials.status());
  }
  if (!usage.ok()) return examples::WrongUsage(kProgram, usage.message(), kUsage);

  absl::Status status;
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = Connect(target, polling, std::move(options));
  if (!channel.ok()) {
    status = channel.status();
  } else {
    const echo::EchoStub stub(*channel);
    status = count == 0 ? EchoOnce(stub, message) : EchoMany(stub, count, size_bytes, in_flight);
  }
  if (status.ok()) return 0;
  std::cerr << kProgram << ": " << status.ToString(absl::StatusToStringMode::kWithNoExtraData) << std::endl;
  return 1;
}
