#include "examples/arguments.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace examples {
namespace {

constexpr std::pair<absl::string_view, uint64_t> kByteUnits[] = {{"KiB", uint64_t{1} << 10},
                                                                 {"MiB", uint64_t{1} << 20},
                                                                 {"GiB", uint64_t{1} << 30},
                                                                 {"TiB", uint64_t{1} << 40}};

bool ParseBytes(absl::string_view text, uint64_t* bytes) {
  uint64_t unit = 1;
  for (const auto& [suffix, factor] : kByteUnits) {
    if (absl::ConsumeSuffix(&text, suffix)) unit = factor;
  }
  if (!absl::SimpleAtoi(text, bytes) || *bytes > std::numeric_limits<uint64_t>::max() / unit) return false;
  *bytes *= unit;
  return true;
}

absl::Status InRange(uint64_t number, uint64_t min, uint64_t max) {
  if (number >= min && number <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(number, " is not from ", min, " to ", max));
}

}  // namespace

CommandLine CommandLine::Split(const std::vector<std::string>& arguments) {
  CommandLine line;
  bool words_only = false;
  for (const std::string& argument : arguments) {
    absl::string_view rest = argument;
    if (words_only || !absl::ConsumePrefix(&rest, "--")) {
      line.words.push_back(argument);
    } else if (rest.empty()) {
      words_only = true;
    } else if (size_t equals = rest.find('='); equals != rest.npos) {
      line.flags.push_back({std::string(rest.substr(0, equals)), std::string(rest.substr(equals + 1))});
    } else {
      line.flags.push_back({std::string(rest), std::nullopt});
    }
  }
  return line;
}

FlagSet& FlagSet::Add(absl::string_view name, Setter set) {
  known_.push_back({std::string(name), nullptr, std::move(set)});
  return *this;
}

FlagSet& FlagSet::Text(absl::string_view name, std::string* value) {
  return Add(name, [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

FlagSet& FlagSet::Texts(absl::string_view name, std::vector<std::string>* values) {
  return Add(name, [values](const std::string& text) {
    values->push_back(text);
    return absl::OkStatus();
  });
}

FlagSet& FlagSet::Number(absl::string_view name, uint64_t min, uint64_t max, uint64_t* value) {
  return Add(name, [=](const std::string& text) {
    uint64_t number;
    const bool is_whole = !text.empty() && text.find_first_not_of("0123456789") == text.npos;
    if (!absl::SimpleAtoi(text, &number)) {
      return absl::InvalidArgumentError(is_whole ? absl::StrCat("that is not from ", min, " to ", max)
                                                 : "that is not a whole number");
    }
    *value = number;
    return InRange(number, min, max);
  });
}

FlagSet& FlagSet::Bytes(absl::string_view name, uint64_t min, uint64_t max, uint64_t* value) {
  return Add(name, [=](const std::string& text) {
    uint64_t bytes;
    if (!ParseBytes(text, &bytes)) {
      return absl::InvalidArgumentError("that is not a size: 4096, 64KiB, 512MiB and 4GiB are");
    }
    *value = bytes;
    return InRange(bytes, min, max);
  });
}

FlagSet& FlagSet::Choice(absl::string_view name, std::vector<std::string> choices, size_t* value) {
  return Add(name, [choices = std::move(choices), value](const std::string& text) {
    const auto chosen = std::find(choices.begin(), choices.end(), text);
    if (chosen == choices.end()) {
      return absl::InvalidArgumentError(absl::StrCat("that is none of ", absl::StrJoin(choices, ", ")));
    }
    *value = static_cast<size_t>(chosen - choices.begin());
    return absl::OkStatus();
  });
}

FlagSet& FlagSet::Duration(absl::string_view name, absl::Duration* value) {
  return Add(name, [value](const std::string& text) {
    absl::Duration duration;
    if (!absl::ParseDuration(text, &duration)) {
      return absl::InvalidArgumentError("that is not a time span: 250ms, 10s and 2m are");
    }
    if (duration <= absl::ZeroDuration()) return absl::InvalidArgumentError("that is not above 0");
    *value = duration;
    return absl::OkStatus();
  });
}

FlagSet& FlagSet::Switch(absl::string_view name, bool* value) {
  known_.push_back({std::string(name), value, nullptr});
  return *this;
}

absl::Status FlagSet::Apply(const CommandLine& line) const {
  for (const CommandLine::Flag& flag : line.flags) {
    const Known* known = nullptr;
    for (const Known& candidate : known_) {
      if (candidate.name == flag.name) known = &candidate;
    }
    if (known == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("there is no flag --", flag.name, " here"));
    if (known->on != nullptr) {
      if (flag.value) return absl::InvalidArgumentError(absl::StrCat("--", flag.name, " takes no value"));
      *known->on = true;
      continue;
    }
    if (!flag.value) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, " needs a value: --", flag.name, "=..."));
    }
    if (absl::Status status = known->set(*flag.value); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--", flag.name, "=", *flag.value, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

bool WantsHelp(const CommandLine& line) {
  for (const CommandLine::Flag& flag : line.flags) {
    if (flag.name == "help") return true;
  }
  return false;
}

int WrongUsage(absl::string_view program, absl::string_view why, absl::string_view usage) {
  std::cerr << program << ": " << why << "\nusage: " << usage << std::endl;
  return 2;
}

}  // namespace examples
