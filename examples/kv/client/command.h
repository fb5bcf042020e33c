#ifndef EXAMPLES_KV_CLIENT_COMMAND_H_
#define EXAMPLES_KV_CLIENT_COMMAND_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "hawser/rpc/channel.h"

namespace kv {

// The server that a command talks to.
struct Target {
  std::string uri;
  absl::Duration timeout = absl::Minutes(1);  // For each call. A large value takes long on a slow network.
  std::optional<hawser::TlsCredentials> credentials = {};

  absl::StatusOr<std::shared_ptr<hawser::Channel>> Connect(hawser::ChannelOptions options = {}) const;
};

// One sub-command of kv, one file each: put.cc, get.cc, ...
class Command {
 public:
  virtual ~Command() = default;

  // "get KEY [--out=PATH]".
  virtual std::string usage() const = 0;
  virtual void AddFlags(examples::FlagSet&) {}
  // Takes the words behind its name, after the flags were set. Not OK: the usage is wrong.
  virtual absl::Status Take(const std::vector<std::string>& words) = 0;
  // Not OK: not found, or failed.
  virtual absl::Status Run(const Target& target) = 0;
};

std::unique_ptr<Command> NewPut();
std::unique_ptr<Command> NewGet();
std::unique_ptr<Command> NewDel();
std::unique_ptr<Command> NewList();
std::unique_ptr<Command> NewWatch();
std::unique_ptr<Command> NewLoad();
std::unique_ptr<Command> NewBench();
std::unique_ptr<Command> NewStats();

// For Take(). InvalidArgument: "needs KEY" if there are too few words, "do not know what to do with ..." if
// there are too many.
absl::Status TakeWords(const std::vector<std::string>& words, const std::vector<std::string>& names,
                       const std::vector<std::string*>& values);

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_COMMAND_H_
