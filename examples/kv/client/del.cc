#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "examples/kv/client/command.h"
#include "examples/kv/kv.rpc.h"

namespace kv {
namespace {

class Del : public Command {
 public:
  std::string usage() const override { return "del KEY"; }

  absl::Status Take(const std::vector<std::string>& words) override {
    return TakeWords(words, {"KEY"}, {&key_});
  }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    auto call = KeyValueStub(*channel).Remove();
    call.request().setKey(key_);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    std::cout << "revision " << (*reply)->getRevision() << std::endl;
    return absl::OkStatus();
  }

 private:
  std::string key_;
};

}  // namespace

std::unique_ptr<Command> NewDel() { return std::make_unique<Del>(); }

}  // namespace kv
