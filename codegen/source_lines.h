#ifndef HAWSER_CODEGEN_SOURCE_LINES_H_
#define HAWSER_CODEGEN_SOURCE_LINES_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace hawser::codegen {

// On which line of a schema something is declared. Cap'n Proto 0.9 does not tell its plugins, so this reads
// the file again; it knows just enough of the language for that.
class SourceLines {
 public:
  // Nothing is found in an empty text.
  explicit SourceLines(absl::string_view text);

  // The lines of a schema file. It is looked for in the current folder, in the one that `capnp` was called in
  // (it calls its plugins in the output folder, but stays there itself) and in those of $HAWSER_SCHEMA_PATH,
  // which are separated by colons and start from there: for schemas that were given with --src-prefix. Not
  // there: no line is ever found.
  static SourceLines OfFile(const std::string& path);

  // "Outer.Inner" or, for a method, "Outer.Inner.get"; constants, and groups, too; "$Cxx.namespace". 0: not
  // found.
  int Find(absl::string_view scoped_name) const;

  // The method, field or enumerant that `scoped_name`, "Outer.Inner", declares with this ordinal. 0: not
  // found.
  int Find(absl::string_view scoped_name, uint16_t ordinal) const;

 private:
  absl::flat_hash_map<std::string, int> lines_;
};

}  // namespace hawser::codegen

#endif  // HAWSER_CODEGEN_SOURCE_LINES_H_
