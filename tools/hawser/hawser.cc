// hawser: asks a Hawser server. Exit status: 0: done; 1: the server or the call said no; 2: wrong usage.

#include <kj/exception.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/arguments.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/command.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/help.h"
#include "hawser/tools/hawser/nearest.h"
#include "hawser/transport/uri.h"

namespace {

namespace tool = hawser::tool;

int WrongUsage(absl::string_view program, absl::string_view why, absl::string_view help) {
  std::cerr << program << ": " << why << "\ntry: " << help << std::endl;
  return 2;
}

// Not for the doctor, which reports such an address as what it finds.
absl::Status CheckScheme(absl::string_view target) {
  namespace transport = hawser::transport;
  const auto uri = transport::ParseUri(target);
  if (!uri.ok()) return uri.status();
  for (const char* scheme : {transport::kTcpScheme, transport::kRdmaScheme, transport::kAutoScheme}) {
    if (uri->scheme == scheme) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("--target=", target, ": no scheme of Hawser is ",
                                                 uri->scheme, "://; there are: ", transport::kSchemes));
}

absl::StatusOr<int> Run(tool::Command& command, const tool::Session& session) {
  // Reading what is malformed throws. A server must not be able to end the program without an error.
  try {
    return command.Run(session);
  } catch (const kj::Exception& exception) {
    const kj::StringPtr what = exception.getDescription();
    return absl::DataLossError(absl::StrCat(
        "what ", session.target, " sent is malformed: ", absl::string_view(what.begin(), what.size())));
  }
}

}  // namespace

int main(int argc, char** argv) {
  signal(SIGXFSZ, SIG_IGN);  // A file that grows beyond `ulimit -f` is an error, and not the end without one.

  auto line = examples::CommandLine::Split({argv + 1, argv + argc});
  // "hawser help call" and "hawser call -h", which people try first.
  for (size_t i = 0; i < line.words.size(); ++i) {
    if (line.words[i] != "-h" && (i > 0 || line.words[i] != "help")) continue;
    line.words.erase(line.words.begin() + static_cast<ptrdiff_t>(i));
    line.flags.push_back({"help", std::nullopt});
    break;
  }
  // "hawser --version".
  const auto version = std::find_if(line.flags.begin(), line.flags.end(),
                                    [](const auto& flag) { return flag.name == "version"; });
  if (line.words.empty() && version != line.flags.end() && !version->value.has_value()) {
    line.flags.erase(version);
    line.words.push_back("version");
  }
  if (line.words.empty()) {
    if (examples::WantsHelp(line)) {
      std::cout << tool::HelpOfAll() << std::flush;
      return 0;
    }
    return WrongUsage("hawser", "no command", "hawser --help");
  }
  std::vector<std::string> names;
  for (const auto& each : tool::AllCommands()) names.emplace_back(each->help().name);
  const std::unique_ptr<tool::Command> command = tool::NewCommand(line.words[0]);
  if (command == nullptr) {
    return WrongUsage(
        "hawser",
        absl::StrCat("there is no command \"", hawser::EscapePeerText(line.words[0]), "\"",
                     tool::DidYouMean(line.words[0], names, "."), " There are: ", tool::Listed(names)),
        "hawser --help");
  }
  if (examples::WantsHelp(line)) {
    std::cout << tool::HelpOf(*command) << std::flush;
    return 0;
  }

  const std::string program = absl::StrCat("hawser ", command->help().name);
  tool::Session session;
  bool help = false;
  tool::Flags flags;
  tool::AddFlagsOf(*command, session, help, flags);
  absl::Status usage = flags.Apply(line);
  if (usage.ok()) usage = command->Take({line.words.begin() + 1, line.words.end()});
  if (usage.ok() && command->needs() == tool::Needs::kTarget && session.target.empty()) {
    usage =
        absl::InvalidArgumentError("no --target: which server? For example --target=tcp://localhost:7470");
  }
  if (usage.ok() && !session.target.empty()) usage = hawser::transport::ParseUri(session.target).status();
  if (usage.ok() && command->needs() == tool::Needs::kTarget) usage = CheckScheme(session.target);
  if (usage.ok()) usage = session.Credentials().status();
  if (!usage.ok())
    return WrongUsage(program, hawser::EscapePeerText(usage.message()), absl::StrCat(program, " --help"));

  absl::StatusOr<int> exit_status = Run(*command, session);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.flush()) {
    exit_status = absl::ErrnoToStatus(errno, "cannot write to stdout");
  }
  if (exit_status.ok()) return *exit_status;
  if (session.json) std::cout << tool::ErrorAsJson(exit_status.status()) << std::endl;
  std::cerr << program << ": " << tool::ForPeople(exit_status.status()) << std::endl;
  return 1;
}
