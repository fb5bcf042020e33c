#ifndef HAWSER_TRANSPORT_WIRE_CAPNP_LAYOUT_H_
#define HAWSER_TRANSPORT_WIRE_CAPNP_LAYOUT_H_

#include <capnp/layout.h>
#include <capnp/message.h>
#include <stddef.h>
#include <string.h>

#include <cstdint>

#include "hawser/base/check.h"
#include "hawser/base/endian.h"

// Uses a reader or a builder of Cap'n Proto for one message after another.
//
// The public interface of Cap'n Proto makes an arena for each message, and destroys it. That is 530 of the
// instructions of a small call at each side, more than reading and writing its fields. The functions here put
// an arena that is there into the state in which the library makes one, and read and make the pointer to the
// root without a call into the library. The bytes, the checks and the limits are those of the library.
//
// They know where the private members of the library's objects are, so use them only if Known().
namespace hawser::transport::capnp_layout {

// Versions of Cap'n Proto whose sources have these members (message.h, arena.h, layout.h; kj/array.h).
inline constexpr int kVersionMin = 9002, kVersionMax = 1004000;  // 0.9.2 and 1.4.0

// True: the version is one of these, and the objects that the library makes in a trial are laid out as it is
// written here. The trial takes a microsecond, once in a process.
bool Known();

// The members, by the names of the library's classes.
struct SegmentReader {
  const void* arena;
  uint32_t id;
  const capnp::word* begin;
  uint64_t word_count;
  const void* limiter;
};
struct MessageReader {
  const void* vtable;
  uint64_t traversal_words_max;  // ReaderOptions.
  int32_t nesting_max;
  struct ReaderArena {
    const void* vtable;
    const void* message;
    uint64_t words_left;  // ReadLimiter.
    SegmentReader segment;
  } arena;
};
struct MessageBuilder {
  const void* vtable;
  struct BuilderArena {
    const void* vtable;
    const void* message;
    uint64_t words_left;
    struct LocalCapTable {
      const void* vtable;
      const void* begin;
      const void* end;
      const void* end_of_memory;
      const void* disposer;
    } capabilities;
    struct SegmentBuilder {
      SegmentReader reader;
      capnp::word* end;
      bool is_read_only;
    } segment;
    const capnp::word* output_begin;
    uint64_t output_words;
    const void* more_segments_disposer;
    const void* more_segments;
    const void* segment_with_space;
  } arena;
};
struct StructReader {
  const void* segment;
  const void* capabilities;
  const void* data;
  const void* pointers;
  uint32_t data_bits;
  uint16_t pointer_count;
  int32_t nesting_max;
};
struct StructBuilder {
  void* segment;
  void* capabilities;
  void* data;
  void* pointers;
  uint32_t data_bits;
  uint16_t pointer_count;
};

template <typename Member>
inline Member Load(const void* object, size_t offset) {
  Member member;
  memcpy(&member, static_cast<const char*>(object) + offset, sizeof(member));
  return member;
}
template <typename Member>
inline void Store(void* object, size_t offset, Member member) {
  memcpy(static_cast<char*>(object) + offset, &member, sizeof(member));
}
inline void* At(void* object, size_t offset) { return static_cast<char*>(object) + offset; }
// Copies what both have: other versions of the library may have other classes, and then nothing calls this.
template <typename Capnp, typename Members>
inline void StoreAll(Capnp& object, const Members& members) {
  memcpy(static_cast<void*>(&object), &members,
         sizeof(members) < sizeof(object) ? sizeof(members) : sizeof(object));
}

// ---- Readers

// `reader`, which has returned a root before, reads `segment` from now on, the only segment of its message:
// at least a word, aligned. `words_left` of the words that `limits` allow. No reader of the message before is
// in use, and that had one segment as well.
inline void Restart(capnp::MessageReader& reader, kj::ArrayPtr<const capnp::word> segment,
                    capnp::ReaderOptions limits, uint64_t words_left) {
  using Arena = MessageReader::ReaderArena;
  constexpr size_t kArena = offsetof(MessageReader, arena);
  constexpr size_t kSegment = kArena + offsetof(Arena, segment);
  Store(&reader, offsetof(MessageReader, traversal_words_max), uint64_t{limits.traversalLimitInWords});
  Store(&reader, offsetof(MessageReader, nesting_max), int32_t{limits.nestingLimit});
  Store(&reader, kArena + offsetof(Arena, words_left), words_left);
  Store(&reader, kSegment + offsetof(SegmentReader, begin), segment.begin());
  Store(&reader, kSegment + offsetof(SegmentReader, word_count), uint64_t{segment.size()});
}

// The same, and `root` becomes the root as reader.getRoot<T>() reads it for a T that is a struct. False: it
// is no struct in the segment, or it is beyond a limit. Then nothing has changed.
// `capabilities`: what PointerReader::getCapTable() of a root that `reader` has returned says.
inline bool RestartAtRootStruct(capnp::MessageReader& reader, kj::ArrayPtr<const capnp::word> segment,
                                capnp::ReaderOptions limits, const void* capabilities,
                                capnp::_::StructReader& root) {
  const uint64_t pointer = LoadLittle64(reinterpret_cast<const uint8_t*>(segment.begin()));
  const auto low = static_cast<uint32_t>(pointer);
  const uint32_t data = static_cast<uint32_t>(pointer >> 32) & 0xffff;
  const uint32_t pointers = static_cast<uint32_t>(pointer >> 48);
  // In words from the begin of the segment. In front of that: more than its size.
  const auto target = static_cast<uint64_t>(int64_t{1} + (static_cast<int32_t>(low) >> 2));
  const uint64_t words = uint64_t{data} + pointers;
  const uint64_t counted = 2 + words;  // The library counts the pointer to the root twice.
  if (pointer == 0 || (low & 3) != 0 || target > segment.size() || words > segment.size() - target ||
      counted > limits.traversalLimitInWords || limits.nestingLimit <= 0) [[unlikely]] {
    return false;
  }
  Restart(reader, segment, limits, limits.traversalLimitInWords - counted);
  using Arena = MessageReader::ReaderArena;
  constexpr size_t kSegment = offsetof(MessageReader, arena) + offsetof(Arena, segment);
  const capnp::word* const begin = segment.begin() + target;
  StoreAll(root, StructReader{.segment = At(&reader, kSegment),
                              .capabilities = capabilities,
                              .data = begin,
                              .pointers = begin + data,
                              .data_bits = data * 64,
                              .pointer_count = static_cast<uint16_t>(pointers),
                              .nesting_max = limits.nestingLimit - 1});
  return true;
}

// ---- Builders. Each has returned a root before, so that it has its first segment.

// The words that are in use of its only segment, which begins at `begin`. 0: it has more than that segment,
// or capabilities. It has to be destroyed then.
inline uint64_t WordsInUse(const capnp::MessageBuilder& builder, const capnp::word* begin) {
  using Arena = MessageBuilder::BuilderArena;
  constexpr size_t kArena = offsetof(MessageBuilder, arena);
  constexpr size_t kCapabilities = kArena + offsetof(Arena, capabilities);
  if (Load<const void*>(&builder, kArena + offsetof(Arena, more_segments)) != nullptr ||
      Load<const void*>(&builder, kCapabilities + offsetof(Arena::LocalCapTable, begin)) !=
          Load<const void*>(&builder, kCapabilities + offsetof(Arena::LocalCapTable, end))) [[unlikely]] {
    return 0;
  }
  const size_t end = kArena + offsetof(Arena, segment) + offsetof(Arena::SegmentBuilder, end);
  return static_cast<uint64_t>(Load<const capnp::word*>(&builder, end) - begin);
}

// `builder` has one segment, which begins at `begin` and is zeros again: now its message has only the pointer
// to its root, which is null. No builder or orphan of the message before is in use.
inline void Restart(capnp::MessageBuilder& builder, capnp::word* begin) {
  using Arena = MessageBuilder::BuilderArena;
  constexpr size_t kArena = offsetof(MessageBuilder, arena);
  Store(&builder, kArena + offsetof(Arena, segment) + offsetof(Arena::SegmentBuilder, end), begin + 1);
}

// Makes the root a struct of `size`, as builder.initRoot<T>() does. `builder` is as after Restart(), and its
// segment has room for the struct, which is not empty.
inline capnp::_::StructBuilder InitRootStruct(capnp::MessageBuilder& builder, capnp::word* begin,
                                              capnp::_::StructSize size) {
  using Arena = MessageBuilder::BuilderArena;
  constexpr size_t kArena = offsetof(MessageBuilder, arena);
  constexpr size_t kSegment = kArena + offsetof(Arena, segment);
  const uint32_t data = size.data, pointers = size.pointers;
#ifndef NDEBUG
  const auto room = Load<uint64_t>(
      &builder, kSegment + offsetof(Arena::SegmentBuilder, reader) + offsetof(SegmentReader, word_count));
  HAWSER_CHECK(uint64_t{1} + data + pointers <= room, "a root of ", data, " + ", pointers,
               " words, in a segment of ", room);
#endif
  StoreLittle64(reinterpret_cast<uint8_t*>(begin), uint64_t{pointers} << 48 | uint64_t{data} << 32);
  Store(&builder, kSegment + offsetof(Arena::SegmentBuilder, end), begin + 1 + data + pointers);
  capnp::_::StructBuilder root;
  StoreAll(root, StructBuilder{.segment = At(&builder, kSegment),
                               .capabilities = At(&builder, kArena + offsetof(Arena, capabilities)),
                               .data = begin + 1,
                               .pointers = begin + 1 + data,
                               .data_bits = data * 64,
                               .pointer_count = static_cast<uint16_t>(pointers)});
  return root;
}

}  // namespace hawser::transport::capnp_layout

#endif  // HAWSER_TRANSPORT_WIRE_CAPNP_LAYOUT_H_
