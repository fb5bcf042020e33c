#ifndef HAWSER_TOOLS_HAWSER_COMMAND_H_
#define HAWSER_TOOLS_HAWSER_COMMAND_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/options.h"
#include "hawser/tools/hawser/flags.h"

namespace hawser::tool {

// The values of the flags that commands share.
struct Session {
  std::string target;  // "tcp://kv1:7470"; empty: none was given.
  absl::Duration timeout = absl::Seconds(10);
  TlsCredentials tls = {};  // Its file names are empty: no TLS.
  bool json = false;

  // InvalidArgument: some files of `tls` are missing, or all of them and a name is there.
  absl::StatusOr<std::optional<TlsCredentials>> Credentials() const;

  // Connects. The error says to whom, why, and what to try.
  absl::StatusOr<std::shared_ptr<Channel>> Connect(ChannelOptions options = {}) const;
  // Does not wait for the connection, except to auto://: only a connection tells which network that is. If
  // there is none, the first call ends with the reason: see Unreachable().
  absl::StatusOr<std::shared_ptr<Channel>> StartToConnect(ChannelOptions options = {}) const;
  // `why`, with the target and what to try.
  absl::Status Unreachable(const absl::Status& why) const;

 private:
  absl::StatusOr<ChannelOptions> With(ChannelOptions options) const;
};

// What --help, the man page and the completion are made of. Lines of `text` and `examples` that begin with a
// space stay as they are; others are wrapped.
struct CommandHelp {
  const char* name;      // "call"
  const char* words;     // "NAME.METHOD [JSON]"
  const char* summary;   // In one line, without a full stop.
  const char* text;      // Paragraphs.
  const char* examples;  // Command lines, one a line.
};

enum class Needs { kNothing, kMayHaveTarget, kTarget };

// One command of hawser, one file each. A new one gets an entry in commands.cc; the rest follows from that.
class Command {
 public:
  virtual ~Command() = default;

  virtual const CommandHelp& help() const = 0;
  virtual Needs needs() const { return Needs::kTarget; }
  // The command's own flags, beside those of Session.
  virtual void AddFlags(Flags&) {}
  // Takes the words behind its name, after the flags were set. Not OK: the usage is wrong.
  virtual absl::Status Take(const std::vector<std::string>& words);
  // The exit status, 0 or 1. Not OK: it failed, which is 1. May throw kj::Exception: the server sent what is
  // malformed.
  virtual absl::StatusOr<int> Run(const Session& session) = 0;
};

// For Take(): each word becomes the value of the name at its place. InvalidArgument: there are fewer words
// than names, or more.
absl::Status TakeWords(const std::vector<std::string>& words, const std::vector<std::string>& names,
                       const std::vector<std::string*>& values);

// A status as people read it: "NOT_FOUND: no such key". Escaped.
std::string ForPeople(const absl::Status& status);
// {"error": {"code": "NOT_FOUND", "message": "no such key"}}
std::string ErrorAsJson(const absl::Status& status);

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_COMMAND_H_
