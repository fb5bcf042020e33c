#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/client/output_file.h"
#include "examples/kv/kv.rpc.h"
#include "examples/progress.h"

namespace kv {
namespace {

class Get : public Command {
 public:
  std::string usage() const override { return "get KEY [--out=PATH] [--one_sided]"; }

  void AddFlags(examples::FlagSet& flags) override {
    flags.Text("out", &path_).Switch("one_sided", &one_sided_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    return TakeWords(words, {"KEY"}, {&key_});
  }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    KeyValueStub kv(*channel);
    examples::Progress progress;
    progress.Start(absl::StrCat("receiving ", key_));
    if (one_sided_) {
      std::shared_ptr<RemoteTable> table;
      const absl::StatusOr<Lookup> found = LookUp(kv, key_, table);
      if (found.ok() && found->status().ok()) return Deliver(found->value(), progress);
      // A server that has no room for another ticket can still be called.
      const bool has_call = found.ok() ? found->is_elsewhere() : absl::IsResourceExhausted(found.status());
      const absl::Status& why = found.ok() ? found->status() : found.status();
      if (!has_call) return why;
      std::cerr << "kv get: " << why.message() << "; the server is called" << std::endl;
    }
    auto call = kv.Get();
    call.request().setKey(key_);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    const capnp::Data::Reader value = (*reply)->getValue();
    return Deliver({value.begin(), value.size()}, progress);
  }

 private:
  absl::Status Deliver(absl::Span<const uint8_t> value, examples::Progress& progress) const {
    if (!path_.empty()) {
      progress.Start(absl::StrCat("writing ", path_), value.size());
      return WriteFile(path_, value.data(), value.size(), [&](uint64_t bytes) { progress.Done(bytes); });
    }
    progress.End();
    std::fwrite(value.data(), 1, value.size(), stdout);
    // Only on a terminal: a program gets the value without a line feed.
    if (isatty(STDOUT_FILENO)) std::fputc('\n', stdout);
    return absl::OkStatus();
  }

  std::string key_;
  std::string path_;
  bool one_sided_ = false;
};

}  // namespace

std::unique_ptr<Command> NewGet() { return std::make_unique<Get>(); }

}  // namespace kv
