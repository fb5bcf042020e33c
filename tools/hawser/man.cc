#include <iostream>
#include <memory>

#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/help.h"

namespace hawser::tool {
namespace {

class Man : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "man", "", "prints the man page, hawser(1), in the language of man(7)",
        "It has the text of each command's --help.",
        "hawser man > ~/.local/share/man/man1/hawser.1\nhawser man | man -l -"};
    return kHelp;
  }
  Needs needs() const override { return Needs::kNothing; }

  absl::StatusOr<int> Run(const Session&) override {
    std::cout << ManPage();
    return 0;
  }
};

}  // namespace

std::unique_ptr<Command> NewMan() { return std::make_unique<Man>(); }

}  // namespace hawser::tool
