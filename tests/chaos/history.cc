#include "hawser/tests/chaos/history.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace hawser::chaos {

void History::Line(absl::string_view text) {
  absl::PrintF("%8.3f  %s\n", absl::ToDoubleSeconds(absl::Now() - start_), text);
  std::fflush(stdout);
}

void History::Event(absl::string_view what, absl::string_view whom) {
  absl::MutexLock lock(&mutex_);
  ++counts_[std::string(what)];
  Line(absl::StrCat(what, " ", whom));
}

void History::Note(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  Line(text);
}

void History::Wrong(absl::string_view text) {
  absl::MutexLock lock(&mutex_);
  ++wrong_;
  Line(absl::StrCat("WRONG: ", text));
}

bool History::wrong() const {
  absl::MutexLock lock(&mutex_);
  return wrong_ > 0;
}

std::string History::Counts() const {
  absl::MutexLock lock(&mutex_);
  std::string text;
  for (const auto& [what, count] : counts_) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", what, " ", count);
  }
  return text;
}

}  // namespace hawser::chaos
