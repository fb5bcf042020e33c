// The client of kv_server. Exit status: 0: done; 1: not found, or failed; 2: wrong usage.

#include <kj/exception.h>
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/arguments.h"
#include "examples/kv/client/command.h"
#include "examples/tls_flags.h"

namespace {

constexpr char kProgram[] = "kv";
constexpr char kTarget[] =
    "kv --target=tcp://HOST:PORT [--timeout=1m]\n"
    "   [--tls_certificate=FILE --tls_key=FILE --tls_authorities=FILE [--tls_server_name=NAME]] ";

constexpr std::pair<const char*, std::unique_ptr<kv::Command> (*)()> kCommands[] = {
    {"put", kv::NewPut},     {"get", kv::NewGet},   {"del", kv::NewDel},     {"list", kv::NewList},
    {"watch", kv::NewWatch}, {"load", kv::NewLoad}, {"bench", kv::NewBench}, {"stats", kv::NewStats},
};

std::string UsageOfAll() {
  std::string usage = absl::StrCat(kTarget, "COMMAND ..., where the commands are");
  for (const auto& [name, make] : kCommands) absl::StrAppend(&usage, "\n  ", make()->usage());
  return usage;
}

}  // namespace

int main(int argc, char** argv) {
  // Without this, a file that grows beyond `ulimit -f` would kill the process and leave half a file.
  signal(SIGXFSZ, SIG_IGN);

  const auto line = examples::CommandLine::Split({argv + 1, argv + argc});
  if (examples::WantsHelp(line)) {
    std::cout << "usage: " << UsageOfAll() << std::endl;
    return 0;
  }
  if (line.words.empty()) return examples::WrongUsage(kProgram, "no command", UsageOfAll());
  const std::string& name = line.words[0];
  std::unique_ptr<kv::Command> command;
  for (const auto& [known, make] : kCommands) {
    if (name == known) command = make();
  }
  if (command == nullptr) {
    return examples::WrongUsage(kProgram, absl::StrCat("no command \"", name, "\""), UsageOfAll());
  }

  kv::Target target;
  examples::FlagSet flags;
  flags.Text("target", &target.uri).Duration("timeout", &target.timeout);
  examples::TlsFlags tls;
  tls.AddForClientTo(flags);
  command->AddFlags(flags);
  absl::Status usage = flags.Apply(line);
  if (usage.ok()) usage = command->Take({line.words.begin() + 1, line.words.end()});
  if (usage.ok() && target.uri.empty()) usage = absl::InvalidArgumentError("no --target: which server?");
  if (const auto credentials = tls.Credentials(); credentials.ok()) {
    target.credentials = *credentials;
  } else {
    usage.Update(credentials.status());
  }
  if (!usage.ok()) {
    return examples::WrongUsage(absl::StrCat(kProgram, " ", name), usage.message(),
                                absl::StrCat(kTarget, command->usage()));
  }

  // Reading a malformed answer throws. A server must not be able to end the program without an error message.
  absl::Status status;
  try {
    status = command->Run(target);
  } catch (const kj::Exception& exception) {
    status = absl::DataLossError(absl::StrCat("the server's answer is malformed: ",
                                              absl::string_view(exception.getDescription().cStr())));
  }
  if (status.ok() && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    status = absl::ErrnoToStatus(errno, "cannot write to stdout");
  }
  if (status.ok()) return 0;
  std::cerr << kProgram << " " << name << ": " << status.ToString(absl::StatusToStringMode::kWithNoExtraData)
            << std::endl;
  return 1;
}
