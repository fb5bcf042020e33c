#ifndef HAWSER_TRANSPORT_FLAT_MESSAGE_H_
#define HAWSER_TRANSPORT_FLAT_MESSAGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

// Small messages are checked as a whole when they are first read. Cap'n Proto otherwise checks each pointer
// when it is followed, and keeps an arena for each message that counts what was read: 340 instructions more
// for a message with one Data of 32 bytes (bench/instructions.py).
namespace hawser::transport {

// A larger message is checked while it is read: to look at all of it could cost more than its reader wants to
// know of it.
inline constexpr size_t kFlatWordsMax = 128;

// True: Cap'n Proto's unchecked readers (PointerReader::getRootUnchecked()) touch nothing outside `words`,
// whatever schema they read it with. Each pointer that can be reached from the root, the first of `words`,
// leads to an object inside; the objects, each counted once for each way that leads to it, are no larger
// than `words`; nothing is nested deeper than `nesting_max`; there are no far pointers and no capabilities. The
// readers still refuse an object of a wrong kind, and a text that does not end with a 0.
// False: `words` are malformed, too many, or have one of those. Read them with a MessageReader, which says what
// is wrong.
// The format: https://capnproto.org/encoding.html
bool IsFlat(absl::Span<const uint64_t> words, int nesting_max);

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_FLAT_MESSAGE_H_
