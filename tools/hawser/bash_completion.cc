#include "hawser/tools/hawser/bash_completion.h"

#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "hawser/tools/hawser/command.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/help.h"

namespace hawser::tool {
namespace {

// Before the parts that depend on the commands. bash divides command lines at "=" and ":", too, and an
// argument such as --in=FIELD=FILE has then many words, which may be quoted in part. So the line is read
// anew. What is offered replaces the last of those words only: readline puts it in the place of $2.
constexpr char kFunctions[] = R"bash(# bash completion of hawser: source <(hawser completion bash)

# Sets _hawser_arguments to the arguments of a command line, without their quotes. The last one is being typed.
_hawser_divide() {
  local line=$1 quote='' argument='' begun='' c i
  _hawser_arguments=()
  for ((i = 0; i < ${#line}; ++i)); do
    c=${line:i:1}
    if [[ $quote == "'" && $c != "'" ]]; then
      argument+=$c
    elif [[ -n $quote && $c == "$quote" ]]; then
      quote=''
    elif [[ $c == \\ ]]; then
      ((++i))
      c=${line:i:1}
      [[ -z $quote || $c == [\$\`\"\\] ]] || argument+=\\
      argument+=$c
    elif [[ -n $quote ]]; then
      argument+=$c
    elif [[ $c == [\"\'] ]]; then
      quote=$c
    elif [[ $c == [[:space:]] ]]; then
      [[ -z $begun ]] || _hawser_arguments+=("$argument")
      argument='' begun=''
      continue
    else
      argument+=$c
    fi
    begun=1
  done
  _hawser_arguments+=("$argument")
}

# Offers $1 before each further argument, if what is typed begins so.
_hawser_offer() {
  local before=$1 offer
  shift
  for offer; do
    offer=$before$offer
    [[ $offer != "$_hawser_typed"* ]] || COMPREPLY+=("${offer#"$_hawser_kept"}")
  done
}

# Offers $1 before the files whose path begins with $2.
_hawser_files() {
  local before=$1 path=$2 home files=() file
  if [[ $path =~ ^~[A-Za-z0-9._-]*(/|$) ]]; then
    eval "home=${path%%/*}"  # Nothing but ~ and the name of a user.
    if [[ $home != '~'* ]]; then
      path=${path#"${path%%/*}"}
      path=${home%/}/${path#/}
    fi
  fi
  while IFS= read -r -d '' file; do
    [[ -z $file || $file == . || $file == .. || $file == */. || $file == */.. ]] || files+=("$file")
  done < <(set +f; shopt -u failglob; shopt -s nullglob; printf '%s\0' "$path"*)
  if [[ $_hawser_kept == "$before" ]]; then
    COMPREPLY=("${files[@]}")
    compopt -o filenames 2>/dev/null  # readline quotes them, and puts a slash behind a folder.
    return
  fi
  for file in "${files[@]}"; do
    if [[ -d $file ]]; then
      file+=/
      compopt -o nospace 2>/dev/null
    fi
    file=$before$file
    [[ $file != "$_hawser_kept"* ]] || COMPREPLY+=("$(printf %q "${file#"$_hawser_kept"}")")
  done
}

_hawser() {
  local IFS=$' \t\n' word=${2-} command='' flags='--help --version' argument
  local _hawser_arguments=() _hawser_typed _hawser_kept
  COMPREPLY=()
  _hawser_divide "${COMP_LINE:0:COMP_POINT}"
  local arguments=("${_hawser_arguments[@]}")
  _hawser_typed=${arguments[${#arguments[@]} - 1]}
  # What of it is before the word that bash replaces.
  if [[ $_hawser_typed != *"$word" ]]; then
    _hawser_divide "$word"
    word=${_hawser_arguments[${#_hawser_arguments[@]} - 1]}
  fi
  _hawser_kept=${_hawser_typed%"$word"}

  for argument in "${arguments[@]:1:${#arguments[@]} - 2}"; do
    [[ $argument == -* ]] || { command=$argument; break; }
  done
  if [[ -z $command && $_hawser_typed != -* ]]; then
    _hawser_offer '' )bash";

constexpr char kValues[] = R"bash(
    return
  fi
  if [[ $_hawser_typed == --*=* ]]; then
    local flag=${_hawser_typed%%=*} value=${_hawser_typed#*=}
    case $command$flag in
)bash";

constexpr char kFlags[] = R"bash(    esac
    return
  fi
  if [[ $command == completion && $_hawser_typed != -* ]]; then
    _hawser_offer '' bash
    return
  fi
  case $command in
)bash";

constexpr char kEnd[] = R"bash(  esac
  _hawser_offer '' $flags
  [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *= ]] || compopt -o nospace 2>/dev/null
}
complete -F _hawser hawser
)bash";

// What to do behind "=" of a flag whose value is called so in --help; "" for a value that the shell cannot
// know.
std::string ValueAction(const std::string& value) {
  if (value == "FILE") return "_hawser_files \"$flag=\" \"$value\"";
  if (absl::EndsWith(value, "=FILE")) {
    return "[[ $value != *=* ]] || _hawser_files \"$flag=${value%%=*}=\" \"${value#*=}\"";
  }
  if (value == "URI")
    return "_hawser_offer \"$flag=\" tcp:// rdma:// auto://; compopt -o nospace 2>/dev/null";
  if (absl::StrContains(value, "|")) {
    return absl::StrCat("_hawser_offer \"$flag=\" ", absl::StrReplaceAll(value, {{"|", " "}}));
  }
  return "";
}

}  // namespace

std::string BashCompletion() {
  std::vector<std::string> names;
  std::string flag_cases;
  std::map<std::string, std::vector<std::string>> flags_of_action;
  for (const auto& command : AllCommands()) {
    const std::string name = command->help().name;
    names.push_back(name);
    std::vector<std::string> flags;
    for (const Flags::Info& flag : FlagsOf(*command)) {
      flags.push_back(absl::StrCat("--", flag.name, flag.value.empty() ? "" : "="));
      const std::string action = ValueAction(flag.value);
      if (!action.empty()) flags_of_action[action].push_back(absl::StrCat(name, "--", flag.name));
    }
    absl::StrAppend(&flag_cases, "  ", name, ") flags='", absl::StrJoin(flags, " "), "' ;;\n");
  }
  std::string value_cases;
  for (const auto& [action, flags] : flags_of_action) {
    absl::StrAppend(&value_cases, "    ", absl::StrJoin(flags, " | "), ")\n      ", action, "\n      ;;\n");
  }
  return absl::StrCat(kFunctions, absl::StrJoin(names, " "), kValues, value_cases, kFlags, flag_cases, kEnd);
}

}  // namespace hawser::tool
