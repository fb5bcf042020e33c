#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "examples/kv/client/command.h"
#include "examples/kv/kv.rpc.h"

namespace kv {
namespace {

class Stats : public Command {
 public:
  std::string usage() const override { return "stats"; }

  absl::Status Take(const std::vector<std::string>& words) override { return TakeWords(words, {}, {}); }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    auto reply = KeyValueStub(*channel).Stats().Send().Wait();
    if (!reply.ok()) return reply.status();
    const KeyValue::Stats::Reader stats = **reply;
    absl::FPrintF(stdout, "keys\t%d\nvalue_bytes\t%d\nmemory_bytes\t%d\nrevision\t%d\nwatches\t%d\n",
                  stats.getKeys(), stats.getValueBytes(), stats.getMemoryBytes(), stats.getRevision(),
                  stats.getWatches());
    absl::FPrintF(stdout, "connections\t%d\ncalls_running\t%d\ncalls_total\t%d\nleased_bytes\t%d\n",
                  stats.getConnections(), stats.getCallsRunning(), stats.getCallsTotal(),
                  stats.getLeasedBytes());
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<Command> NewStats() { return std::make_unique<Stats>(); }

}  // namespace kv
