#ifndef HAWSER_TOOLS_HAWSER_HELP_H_
#define HAWSER_TOOLS_HAWSER_HELP_H_

#include <string>
#include <vector>

#include "hawser/tools/hawser/command.h"
#include "hawser/tools/hawser/flags.h"

namespace hawser::tool {

inline constexpr size_t kHelpColumns = 100;

// The flags of `command`: those that commands share, then its own. Everything given outlives Flags::Apply().
void AddFlagsOf(Command& command, Session& session, bool& help, Flags& flags);

// The same, to describe them.
std::vector<Flags::Info> FlagsOf(Command& command);

// "hawser call --target=URI [...] NAME.METHOD [JSON]"
std::string UsageOf(const Command& command);
// --help of the program and of a command: lines of at most kHelpColumns.
std::string HelpOfAll();
std::string HelpOf(Command& command);
// The man page, hawser(1), in man(7)'s language: the same text.
std::string ManPage();

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_HELP_H_
