#ifndef HAWSER_TOOLS_HAWSER_COMMANDS_H_
#define HAWSER_TOOLS_HAWSER_COMMANDS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tools/hawser/command.h"

namespace hawser::tool {

// Every command, in the order of --help.
std::vector<std::unique_ptr<Command>> AllCommands();
// nullptr: there is none of that name.
std::unique_ptr<Command> NewCommand(absl::string_view name);

std::unique_ptr<Command> NewList();
std::unique_ptr<Command> NewDescribe();
std::unique_ptr<Command> NewCall();
std::unique_ptr<Command> NewPing();
std::unique_ptr<Command> NewPerf();
std::unique_ptr<Command> NewHealth();
std::unique_ptr<Command> NewStatus();
std::unique_ptr<Command> NewTop();
std::unique_ptr<Command> NewDoctor();
std::unique_ptr<Command> NewCompletion();
std::unique_ptr<Command> NewMan();
std::unique_ptr<Command> NewVersion();

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_COMMANDS_H_
