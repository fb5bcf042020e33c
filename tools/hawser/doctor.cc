#include "absl/strings/str_cat.h"
#include "hawser/tools/doctor/run.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/transport/uri.h"

namespace hawser::tool {
namespace {

class Doctor : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "doctor", "", "says what keeps this machine, or the way to a server, from RDMA",
        "Looks at devices, ports, GIDs, libraries, access, memory limits and, with --target, at the way to a "
        "server, and prints one line a finding: ok, warning or problem, what was found, and what to do. It "
        "changes nothing. --timeout is for each step with each of the server's addresses. The exit status is "
        "1 if there is a problem.\n"
        "\n"
        "With --json: one object a line, {\"level\", \"check\", \"subject\", \"found\", \"advice\"}, all "
        "strings.",
        "hawser doctor\nhawser doctor --target=rdma://kv1:7470"};
    return kHelp;
  }
  Needs needs() const override { return Needs::kMayHaveTarget; }

  absl::StatusOr<int> Run(const Session& session) override {
    std::optional<transport::Uri> target;
    if (!session.target.empty()) {
      const absl::StatusOr<transport::Uri> uri = transport::ParseUri(session.target);
      if (!uri.ok()) return uri.status();
      target = *uri;
    }
    return doctor::Run(target, session.timeout, session.json) ? 0 : 1;
  }
};

}  // namespace

std::unique_ptr<Command> NewDoctor() { return std::make_unique<Doctor>(); }

}  // namespace hawser::tool
