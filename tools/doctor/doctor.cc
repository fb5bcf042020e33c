// hawser-doctor: looks at what stops people from using RDMA with Hawser, and says what to do.

#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "hawser/tools/doctor/checks.h"
#include "hawser/tools/doctor/target.h"
#include "hawser/tools/doctor/verbs_loader.h"
#include "hawser/transport/uri.h"

namespace {

using hawser::doctor::Device;
using hawser::doctor::Finding;
using hawser::doctor::Findings;
using hawser::doctor::Level;

constexpr char kProgram[] = "hawser-doctor";
constexpr char kUsage[] =
    "hawser-doctor [--target=URI [--timeout=5s]] [--json]\n"
    "  --target   also connects to this server, and says how far it comes: tcp://HOST:PORT,\n"
    "             rdma://HOST:PORT or auto://HOST:PORT\n"
    "  --timeout  for each step with each of the server's addresses\n"
    "  --json     prints one JSON object a line instead of text, with the strings level (ok, warning, "
    "problem),\n"
    "             check, subject, found and advice\n"
    "Prints one line a finding. Exit status: 0, 1 if there is a problem, 2 if this is not how it is used.";

class Printer {
 public:
  explicit Printer(bool json) : json_(json) {}

  void Print(const Findings& findings) {
    for (const Finding& finding : findings) {
      std::cout << (json_ ? ToJson(finding) : ToText(finding)) << '\n';
      has_problem_ = has_problem_ || finding.level == Level::kProblem;
    }
    std::cout.flush();  // What comes next may take its time.
  }

  bool has_problem() const { return has_problem_; }

 private:
  const bool json_;
  bool has_problem_ = false;
};

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

  hawser::doctor::VerbsLoader loader;
  const hawser::doctor::System system("", loader);
  const std::vector<Device> devices = hawser::doctor::ReadDevices(system);
  Printer printer(json);
  printer.Print(hawser::doctor::Examine(system, devices,
                                        /*rdma_wanted=*/uri->scheme == hawser::transport::kRdmaScheme));
  if (!target.empty()) printer.Print(hawser::doctor::CheckTarget(*uri, timeout, devices));
  return printer.has_problem() ? 1 : 0;
}
