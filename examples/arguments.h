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

// A command line taken apart: flags may stand anywhere, what is left are its words in order. A flag is
// "--name=value", or "--name" for a switch; its value is never the next word, so a command line is understood
// before it is known which flags there are. Behind "--" everything is a word.
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

// The flags that a command takes, each with the variable that gets its value. A variable whose flag is not
// given keeps what it has: the default. The last one given counts.
class FlagSet {
 public:
  FlagSet& Text(absl::string_view name, std::string* value);
  // Every one that is given.
  FlagSet& Texts(absl::string_view name, std::vector<std::string>* values);
  FlagSet& Number(absl::string_view name, uint64_t min, uint64_t max, uint64_t* value);
  // "4096", "64KiB", "512MiB", "4GiB".
  FlagSet& Bytes(absl::string_view name, uint64_t min, uint64_t max, uint64_t* value);
  // "250ms", "10s", "2m". More than zero.
  FlagSet& Duration(absl::string_view name, absl::Duration* value);
  FlagSet& Switch(absl::string_view name, bool* value);

  // Fills the variables. InvalidArgument: what is wrong with which flag.
  absl::Status Apply(const CommandLine& line) const;

 private:
  using Setter = std::function<absl::Status(const std::string& value)>;
  struct Known {
    std::string name;
    bool* on;  // Of a switch; nullptr: it has a value.
    Setter set;
  };
  FlagSet& Add(absl::string_view name, Setter set);

  std::vector<Known> known_;
};

// "--help" is among the flags.
bool WantsHelp(const CommandLine& line);

// Prints what is wrong and how it is right to stderr, and returns the exit status of wrong usage, 2.
int WrongUsage(absl::string_view program, absl::string_view why, absl::string_view usage);

}  // namespace examples

#endif  // EXAMPLES_ARGUMENTS_H_
