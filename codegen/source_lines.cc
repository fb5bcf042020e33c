#include "hawser/codegen/source_lines.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace hawser::codegen {
namespace {

struct Token {
  absl::string_view text;  // An identifier or number, a single other character, or a whole string literal.
  int line;
};

std::vector<Token> Tokenize(absl::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < text.size();) {
    size_t begin = i;
    char c = text[i++];
    if (c == '\n') {
      ++line;
    } else if (c == '#') {
      while (i < text.size() && text[i] != '\n') ++i;
    } else if (c == '"') {
      while (i < text.size() && text[i] != '"' && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
      ++i;
      tokens.push_back({"\"", line});
    } else if (absl::ascii_isalnum(c) || c == '_') {
      while (i < text.size() && (absl::ascii_isalnum(text[i]) || text[i] == '_')) ++i;
      tokens.push_back({text.substr(begin, i - begin), line});
    } else if (!absl::ascii_isspace(c)) {
      tokens.push_back({text.substr(begin, 1), line});
    }
  }
  return tokens;
}

}  // namespace

SourceLines::SourceLines(absl::string_view text) {
  std::vector<Token> tokens = Tokenize(text);
  tokens.push_back({"", 0});
  std::vector<std::string> scopes;  // One for each open brace; empty for a group or union.
  std::string opening;              // What the next brace opens.
  auto declare = [&](absl::string_view name, int line) {
    std::vector<absl::string_view> path;
    for (const std::string& scope : scopes) {
      if (!scope.empty()) path.push_back(scope);
    }
    path.push_back(name);
    lines_.try_emplace(absl::StrJoin(path, "."), line);
  };
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    absl::string_view token = tokens[i].text;
    const Token& next = tokens[i + 1];
    bool scope = token == "struct" || token == "interface" || token == "enum";
    if (scope && absl::ascii_isupper(*next.text.data())) {
      declare(next.text, next.line);
      opening = std::string(next.text);
    } else if (token == "{") {
      scopes.push_back(std::move(opening));
      opening.clear();
    } else if (token == "}" && !scopes.empty()) {
      scopes.pop_back();
    } else if (token == "namespace" && next.text == "(" && scopes.empty()) {
      declare("$Cxx.namespace", tokens[i].line);
    } else if (token == "const" && absl::ascii_islower(*next.text.data())) {
      declare(next.text, next.line);
    } else if (next.text == ":" && i + 2 < tokens.size() && absl::ascii_islower(token[0]) &&
               (tokens[i + 2].text == "group" || tokens[i + 2].text == "union")) {
      declare(token, tokens[i].line);
    } else if (next.text == "@" && absl::ascii_islower(token[0])) {
      declare(token, tokens[i].line);
      if (i + 2 < tokens.size()) declare(absl::StrCat("@", tokens[i + 2].text), tokens[i].line);
    }
  }
}

SourceLines SourceLines::OfFile(const std::string& path) {
  const std::string caller = absl::StrCat("/proc/", getppid(), "/cwd/");
  std::vector<std::string> folders = {"./", caller};
  if (const char* more = std::getenv("HAWSER_SCHEMA_PATH")) {
    for (absl::string_view folder : absl::StrSplit(more, ':', absl::SkipEmpty())) {
      folders.push_back(absl::StrCat(folder[0] == '/' ? "" : caller, folder, "/"));
    }
  }
  for (const std::string& folder : folders) {
    std::ifstream file(path[0] == '/' ? path : folder + path);
    if (file.good()) return SourceLines(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return SourceLines("");
}

int SourceLines::Find(absl::string_view scoped_name) const {
  auto found = lines_.find(scoped_name);
  return found == lines_.end() ? 0 : found->second;
}

int SourceLines::Find(absl::string_view scoped_name, uint16_t ordinal) const {
  return Find(absl::StrCat(scoped_name, ".@", ordinal));
}

}  // namespace hawser::codegen
