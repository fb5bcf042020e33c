#ifndef HAWSER_TOOLS_DOCTOR_FINDING_H_
#define HAWSER_TOOLS_DOCTOR_FINDING_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hawser::doctor {

enum class Level {
  kOk,
  kWarning,  // RDMA works, but not everywhere, not well, or not for long.
  kProblem,  // Something that was asked for cannot work.
};

// "ok", "warning", "problem".
absl::string_view ToString(Level level);

// One thing that was looked at.
struct Finding {
  Level level = Level::kOk;
  std::string check;    // Which check: "port", "memlock", ...
  std::string subject;  // Which one, if there can be several: "mlx5_0/1", a path, an address. May be empty.
  std::string found;
  std::string advice;  // What to do. Never empty for a warning or a problem.
};

using Findings = std::vector<Finding>;

void Append(Findings more, Findings* findings);

// One line without its end. What came from the system and is not printable ASCII stands as \xNN.
std::string ToText(const Finding& finding);

// One line without its end: an object with the members "level", "check", "subject", "found" and "advice", all
// of them strings and always there. Escaped likewise, so that it is valid JSON whatever a file or a peer
// said.
std::string ToJson(const Finding& finding);

}  // namespace hawser::doctor

#endif  // HAWSER_TOOLS_DOCTOR_FINDING_H_
