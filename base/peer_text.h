#ifndef HAWSER_BASE_PEER_TEXT_H_
#define HAWSER_BASE_PEER_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace hawser {

// `text`, which a peer chose, as it may stand in a status, in a log line or on a terminal. Escaped are:
//  - control characters, U+0000 to U+001F and U+007F to U+009F: as \n, \r, \t, \x1b or \u009b;
//  - line and paragraph separators and what changes the direction of text (U+061C, U+200E, U+200F,
//    U+2028 to U+202E, U+2066 to U+2069): as \u202e;
//  - bytes that are not UTF-8, one by one: as \xff.
// The rest stays, the backslash too: a text that passes through several processes is escaped once. At most
// six times as long as `text`.
std::string EscapePeerText(absl::string_view text);

// Whether `text` is UTF-8 as RFC 3629 has it: in the shortest form, no surrogates, at most U+10FFFF.
bool IsUtf8(absl::string_view text);

}  // namespace hawser

#endif  // HAWSER_BASE_PEER_TEXT_H_
