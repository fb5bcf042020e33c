#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/pages.h"
#include "examples/kv/kv.rpc.h"
#include "hawser/rpc/status.h"

namespace kv {
namespace {

class List : public Command {
 public:
  std::string usage() const override { return "list [PREFIX]"; }

  absl::Status Take(const std::vector<std::string>& words) override {
    return words.empty() ? absl::OkStatus() : TakeWords(words, {"PREFIX"}, {&prefix_});
  }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    return ForEachEntry(KeyValueStub(*channel), prefix_, [](KeyValue::Entry::Reader entry) {
      // Any server may send the keys, so they must not control the terminal.
      const capnp::Text::Reader key = entry.getKey();
      absl::FPrintF(stdout, "%s\t%d\t%d\n", hawser::EscapePeerText({key.begin(), key.size()}),
                    entry.getSize(), entry.getRevision());
    });
  }

 private:
  std::string prefix_;
};

}  // namespace

std::unique_ptr<Command> NewList() { return std::make_unique<List>(); }

}  // namespace kv
