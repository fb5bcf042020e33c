#include "hawser/tools/doctor/finding.h"

#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/base/json_writer.h"

namespace hawser::doctor {
namespace {

std::string Printable(absl::string_view text) {
  std::string printable;
  for (const char c : text) {
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      printable.push_back(c);
    } else {
      absl::StrAppendFormat(&printable, "\\x%02x", static_cast<unsigned char>(c));
    }
  }
  return printable;
}

}  // namespace

absl::string_view ToString(Level level) {
  switch (level) {
    case Level::kOk:
      return "ok";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      break;
  }
  return "problem";
}

void Append(Findings more, Findings* findings) {
  findings->insert(findings->end(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
}

std::string ToText(const Finding& finding) {
  std::string what = finding.check;
  if (!finding.subject.empty()) absl::StrAppend(&what, " ", finding.subject);
  absl::StrAppend(&what, ": ", finding.found);
  if (!finding.advice.empty()) absl::StrAppend(&what, "; ", finding.advice);
  return absl::StrFormat("%-8s %s", ToString(finding.level), Printable(what));
}

std::string ToJson(const Finding& finding) {
  JsonWriter json;
  json.BeginObject();
  json.Name("level").String(ToString(finding.level));
  json.Name("check").String(finding.check);
  json.Name("subject").String(finding.subject);
  json.Name("found").String(finding.found);
  json.Name("advice").String(finding.advice);
  json.EndObject();
  return std::move(json).Take();
}

}  // namespace hawser::doctor
