#include "hawser/tools/hawser/commands.h"

namespace hawser::tool {
namespace {

// The one place that names them all.
constexpr std::unique_ptr<Command> (*kCommands[])() = {
    NewList,   NewDescribe, NewCall,   NewPing,       NewPerf, NewHealth,
    NewStatus, NewTop,      NewDoctor, NewCompletion, NewMan,  NewVersion,
};

}  // namespace

std::vector<std::unique_ptr<Command>> AllCommands() {
  std::vector<std::unique_ptr<Command>> commands;
  for (const auto make : kCommands) commands.push_back(make());
  return commands;
}

std::unique_ptr<Command> NewCommand(absl::string_view name) {
  for (const auto make : kCommands) {
    std::unique_ptr<Command> command = make();
    if (name == command->help().name) return command;
  }
  return nullptr;
}

}  // namespace hawser::tool
