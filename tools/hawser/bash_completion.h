#ifndef HAWSER_TOOLS_HAWSER_BASH_COMPLETION_H_
#define HAWSER_TOOLS_HAWSER_BASH_COMPLETION_H_

#include <string>

namespace hawser::tool {

// What bash (4.4 or newer) sources to complete command lines of hawser: commands, flags, and behind "=" what
// the flag takes: the schemes of a URI, one of its choices, files. Files may have any name, begin with ~
// (which the shell does not expand there), and follow FIELD= of --in=FIELD=FILE.
std::string BashCompletion();

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_BASH_COMPLETION_H_
