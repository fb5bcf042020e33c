// hawser-doctor: looks at what stops people from using RDMA with Hawser, and says what to do. `hawser doctor`
// is the same.

#include <iostream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "hawser/tools/doctor/run.h"
#include "hawser/transport/uri.h"

namespace {

constexpr char kProgram[] = "hawser-doctor";
constexpr char kUsage[] =
    "hawser-doctor [--target=URI [--timeout=5s]] [--json]\n"
    "  --target   also connects to this server, and says how far it gets: tcp://HOST:PORT,\n"
    "             rdma://HOST:PORT or auto://HOST:PORT\n"
    "  --timeout  for each step with each of the server's addresses\n"
    "  --json     prints one JSON object a line instead of text, with the strings level (ok, warning, "
    "problem),\n"
    "             check, subject, found and advice\n"
    "Prints one line a finding. Exit status: 0, 1 if there is a problem, 2 if this is not how it is used.";

}  // namespace

int main(int argc, char** argv) {
  std::string target;
  absl::Duration timeout = absl::Seconds(5);
  bool json = false;
  examples::FlagSet flags;
  flags.Text("target", &target).Duration("timeout", &timeout).Switch("json", &json);
  const auto line = examples::CommandLine::Split({argv + 1, argv + argc});
  if (examples::WantsHelp(line)) {
    std::cout << "usage: " << kUsage << std::endl;
    return 0;
  }
  absl::Status usage = flags.Apply(line);
  if (usage.ok() && !line.words.empty()) {
    usage = absl::InvalidArgumentError(absl::StrCat("do not know what to do with \"", line.words[0], "\""));
  }
  absl::StatusOr<hawser::transport::Uri> uri = hawser::transport::Uri();
  if (usage.ok() && !target.empty()) {
    uri = hawser::transport::ParseUri(target);
    usage = uri.status();
  }
  if (!usage.ok()) return examples::WrongUsage(kProgram, usage.message(), kUsage);

  std::optional<hawser::transport::Uri> server;
  if (!target.empty()) server = *uri;
  return hawser::doctor::Run(server, timeout, json) ? 0 : 1;
}
