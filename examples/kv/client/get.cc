#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/output_file.h"
#include "examples/kv/kv.rpc.h"
#include "examples/progress.h"

namespace kv {
namespace {

class Get : public Command {
 public:
  std::string usage() const override { return "get KEY [--out=PATH]"; }

  void AddFlags(examples::FlagSet& flags) override { flags.Text("out", &path_); }

  absl::Status Take(const std::vector<std::string>& words) override {
    return TakeWords(words, {"KEY"}, {&key_});
  }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    KeyValueStub kv(*channel);
    examples::Progress progress;
    progress.Start(absl::StrCat("receiving ", key_));
    auto call = kv.Get();
    call.request().setKey(key_);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    const capnp::Data::Reader value = (*reply)->getValue();
    if (!path_.empty()) {
      progress.Start(absl::StrCat("writing ", path_), value.size());
      return WriteFile(path_, value.begin(), value.size(), [&](uint64_t bytes) { progress.Done(bytes); });
    }
    progress.End();
    std::fwrite(value.begin(), 1, value.size(), stdout);
    // Only on a terminal: a program gets the value without a line feed.
    if (isatty(STDOUT_FILENO)) std::fputc('\n', stdout);
    return absl::OkStatus();
  }

 private:
  std::string key_;
  std::string path_;
};

}  // namespace

std::unique_ptr<Command> NewGet() { return std::make_unique<Get>(); }

}  // namespace kv
