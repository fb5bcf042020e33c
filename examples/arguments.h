#ifndef EXAMPLES_ARGUMENTS_H_
#define EXAMPLES_ARGUMENTS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace examples {

// A command line, split into flags and words. Flags may be at any place; words keep their order. A flag is
// "--name=value", or "--name" for a switch. The next word is never a flag's value, so a command line can be
// split before its flags are known. Behind "--" everything is a word.
//
// Why not absl flags: they are global, so a sub-command cannot have its own; and wrong usage exits with 1.
struct CommandLine {
  struct Flag {
    std::string name;
    std::optional<std::string> value;
  };
  std::vector<Flag> flags;
  std::vector<std::string> words;

  // `arguments`: without the program's name.
  static CommandLine Split(const std::vector<std::string>& arguments);
};

// The flags that a command takes, each with the variable for its value. Without the flag the variable keeps
// its value, the default. If a flag is given twice, the last one counts.
class FlagSet {
 public:
  FlagSet& Text(absl::string_view name, std::string* value);
  // For a flag that may be given several times: collects all values.
  FlagSet& Texts(absl::string_view name, std::vector<std::string>* values);
  FlagSet& Number(absl::string_view name, uint64_t min, uint64_t max, uint64_t* value);
  // "4096", "64KiB", "512MiB", "4GiB".
  FlagSet& Bytes(absl::string_view name, uint64_t min, uint64_t max, uint64_t* value);
  // "250ms", "10s", "2m". Must be more than zero.
  FlagSet& Duration(absl::string_view name, absl::Duration* value);
  // One of `choices`; `value` is its index.
  FlagSet& Choice(absl::string_view name, std::vector<std::string> choices, size_t* value);
  FlagSet& Switch(absl::string_view name, bool* value);

  // Fills the variables. InvalidArgument: names the flag and what is wrong with it.
  absl::Status Apply(const CommandLine& line) const;

 private:
  using Setter = std::function<absl::Status(const std::string& value)>;
  struct Known {
    std::string name;
    bool* on;  // For a switch; nullptr: the flag has a value.
    Setter set;
  };
  FlagSet& Add(absl::string_view name, Setter set);

  std::vector<Known> known_;
};

// Whether "--help" is among the flags.
bool WantsHelp(const CommandLine& line);

// Prints the error and the usage to stderr, and returns the exit status of wrong usage, 2.
int WrongUsage(absl::string_view program, absl::string_view why, absl::string_view usage);

}  // namespace examples

#endif  // EXAMPLES_ARGUMENTS_H_
