#ifndef HAWSER_TOOLS_HAWSER_TO_VIEW_H_
#define HAWSER_TOOLS_HAWSER_TO_VIEW_H_

#include <kj/string.h>

#include "absl/strings/string_view.h"

namespace hawser::tool {

inline absl::string_view ToView(kj::StringPtr text) { return {text.begin(), text.size()}; }

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_TO_VIEW_H_
