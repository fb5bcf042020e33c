#ifndef HAWSER_TOOLS_HAWSER_FLAGS_H_
#define HAWSER_TOOLS_HAWSER_FLAGS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "examples/arguments.h"

namespace hawser::tool {

// The flags that a command takes, and what --help, the man page and the completion say of them: declared
// once.
class Flags {
 public:
  struct Info {
    std::string name;
    std::string value;  // "URI"; empty: a switch.
    std::string text;
  };

  Flags& Text(absl::string_view name, absl::string_view value, absl::string_view text, std::string* into);
  Flags& Texts(absl::string_view name, absl::string_view value, absl::string_view text,
               std::vector<std::string>* into);
  Flags& Number(absl::string_view name, absl::string_view text, uint64_t min, uint64_t max, uint64_t* into);
  // "4096", "64KiB", "512MiB".
  Flags& Bytes(absl::string_view name, absl::string_view text, uint64_t min, uint64_t max, uint64_t* into);
  // One of `choices`; `into` is its index. --help shows them.
  Flags& Choice(absl::string_view name, absl::string_view text, const std::vector<std::string>& choices,
                size_t* into);
  Flags& Duration(absl::string_view name, absl::string_view text, absl::Duration* into);
  Flags& Switch(absl::string_view name, absl::string_view text, bool* into);

  const std::vector<Info>& infos() const { return infos_; }

  // InvalidArgument: names the flag, what is wrong with it, and for an unknown one the nearest.
  absl::Status Apply(const examples::CommandLine& line) const;

 private:
  Flags& Add(absl::string_view name, absl::string_view value, absl::string_view text);

  examples::FlagSet set_;
  std::vector<Info> infos_;
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_FLAGS_H_
