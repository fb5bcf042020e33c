#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"
#include "hawser/tools/hawser/bash_completion.h"
#include "hawser/tools/hawser/commands.h"

namespace hawser::tool {
namespace {

class Completion : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "completion", "bash", "prints what makes a shell complete command lines of hawser",
        "bash is the one shell that it knows. For this shell, and in ~/.bashrc for later ones:",
        "source <(hawser completion bash)"};
    return kHelp;
  }
  Needs needs() const override { return Needs::kNothing; }

  absl::Status Take(const std::vector<std::string>& words) override {
    std::string shell;
    if (absl::Status status = TakeWords(words, {"the name of a shell: bash"}, {&shell}); !status.ok())
      return status;
    if (shell == "bash") return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("no completion for \"", EscapePeerText(shell), "\"; for bash there is"));
  }

  absl::StatusOr<int> Run(const Session&) override {
    std::cout << BashCompletion();
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> NewCompletion() { return std::make_unique<Completion>(); }

}  // namespace hawser::tool
