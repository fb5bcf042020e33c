#include "hawser/bench/stopped_clients.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/bench.rpc.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/channel.h"

namespace hawser::bench {
namespace {

// How long they put before they are stopped, which is then in the middle of some put.
constexpr absl::Duration kRun = absl::Milliseconds(100);

class Putter {
 public:
  Putter(std::shared_ptr<Channel> channel, std::shared_ptr<Buffer> source)
      : target_(std::move(channel)), source_(std::move(source)) {}

  // Puts again after each answer that is OK.
  void Put() {
    auto call = target_.Put({.timeout = absl::Hours(1)});
    call.request().adoptPayload(call.Attach(source_->reader(), source_));
    call.Send().Then([this](const auto& reply) {
      if (reply.ok()) Put();
    });
  }

 private:
  TargetStub target_;
  const std::shared_ptr<Buffer> source_;
};

[[noreturn]] void Die(const absl::Status& why) {
  fprintf(stderr, "bench: a client that is to be stopped: %s\n", why.ToString().c_str());
  exit(1);
}

[[noreturn]] void PutForEver(const std::string& address, int count, size_t bytes) {
  std::vector<std::unique_ptr<Putter>> putters;
  std::shared_ptr<Buffer> source;
  for (int i = 0; i < count; ++i) {
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(address);
    if (!channel.ok()) Die(channel.status());
    if (source == nullptr) {
      absl::StatusOr<Buffer> buffer = (*channel)->AllocateBuffer(bytes);
      if (!buffer.ok()) Die(buffer.status());
      memset(buffer->data(), 'p', bytes);
      source = std::make_shared<Buffer>(*std::move(buffer));
    }
    putters.push_back(std::make_unique<Putter>(*std::move(channel), source));
  }
  for (const auto& putter : putters) putter->Put();
  printf("putting\n");
  fflush(stdout);
  while (true) pause();
}

}  // namespace

StoppedClients::StoppedClients(const std::string& server_address, int count, size_t put_bytes)
    : process_({absl::StrCat("--put_to=", server_address), absl::StrCat("--clients=", count),
                absl::StrCat("--bytes=", put_bytes)}) {
  absl::SleepFor(kRun);
  kill(process_.pid(), SIGSTOP);
}

void PutIfAsked(int argc, char** argv) {
  std::string address;
  int count = 1;
  size_t bytes = 1;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    const std::string value(argument.substr(argument.find('=') + 1));
    if (absl::StartsWith(argument, "--put_to=")) address = value;
    if (absl::StartsWith(argument, "--clients=")) count = atoi(value.c_str());
    if (absl::StartsWith(argument, "--bytes=")) bytes = strtoul(value.c_str(), nullptr, 10);
  }
  if (!address.empty()) PutForEver(address, count, bytes);
}

}  // namespace hawser::bench
