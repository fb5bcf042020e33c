#include "hawser/transport/wire/capnp_layout.h"

#include <capnp/any.h>
#include <capnp/capability.h>
#include <capnp/message.h>
#include <capnp/orphan.h>

#include <array>
#include <type_traits>

namespace hawser::transport::capnp_layout {
namespace {

constexpr bool kVersionIsKnown = CAPNP_VERSION >= kVersionMin && CAPNP_VERSION <= kVersionMax &&
                                 !CAPNP_LITE && sizeof(void*) == 8 &&
                                 sizeof(capnp::MessageReader) >= sizeof(MessageReader) &&
                                 sizeof(capnp::MessageBuilder) >= sizeof(MessageBuilder) &&
                                 sizeof(capnp::_::StructReader) == sizeof(StructReader) &&
                                 sizeof(capnp::_::StructBuilder) == sizeof(StructBuilder) &&
                                 std::is_trivially_copyable_v<capnp::_::StructReader> &&
                                 std::is_trivially_copyable_v<capnp::_::StructBuilder>;

constexpr size_t kWords = 16;
constexpr uint16_t kData = 2, kPointers = 3;

class TrialReader final : public capnp::MessageReader {
 public:
  TrialReader(kj::ArrayPtr<const capnp::word> words, const capnp::ReaderOptions& limits)
      : MessageReader(limits), words_(words) {}
  kj::ArrayPtr<const capnp::word> getSegment(unsigned id) override { return id == 0 ? words_ : nullptr; }
  capnp::_::PointerReader root() {
    return capnp::_::PointerHelpers<capnp::AnyPointer>::getInternalReader(getRoot<capnp::AnyPointer>());
  }

 private:
  const kj::ArrayPtr<const capnp::word> words_;
};

struct TrialBuilder final : capnp::MessageBuilder {
  kj::ArrayPtr<capnp::word> allocateSegment(unsigned) override { return {words(), kWords}; }
  capnp::word* words() { return reinterpret_cast<capnp::word*>(memory.data()); }
  capnp::_::PointerBuilder root() {
    return capnp::_::PointerHelpers<capnp::AnyPointer>::getInternalBuilder(getRoot<capnp::AnyPointer>());
  }

  std::array<uint64_t, kWords> memory = {};
};

// Whether two roots are the same, but for where the segment is.
bool Same(const StructReader& a, const StructReader& b) {
  return a.capabilities == b.capabilities && a.data == b.data && a.pointers == b.pointers &&
         a.data_bits == b.data_bits && a.pointer_count == b.pointer_count && a.nesting_max == b.nesting_max;
}
bool Same(const StructBuilder& a, const StructBuilder& b) {
  return a.segment == b.segment && a.capabilities == b.capabilities && a.data == b.data &&
         a.pointers == b.pointers && a.data_bits == b.data_bits && a.pointer_count == b.pointer_count;
}

bool IsFirst(const SegmentReader& segment, const void* arena, kj::ArrayPtr<const capnp::word> words,
             const void* limiter) {
  return segment.arena == arena && segment.id == 0 && segment.begin == words.begin() &&
         segment.word_count == words.size() && segment.limiter == limiter;
}

// These two read every member before the first is written.

bool BuilderIsKnown() {
  using Arena = MessageBuilder::BuilderArena;
  TrialBuilder builder;
  capnp::word* const words = builder.words();
  capnp::_::PointerBuilder pointer = builder.root();
  void* const arena = At(&builder, offsetof(MessageBuilder, arena));
  void* const capabilities = At(arena, offsetof(Arena, capabilities));
  const auto made = Load<MessageBuilder>(&builder, 0).arena;
  if (static_cast<void*>(pointer.getArena()) != arena ||
      static_cast<void*>(pointer.getCapTable()) != capabilities || made.message != &builder ||
      made.capabilities.begin != nullptr || made.capabilities.end != nullptr ||
      !IsFirst(made.segment.reader, arena, {words, kWords}, At(arena, offsetof(Arena, words_left))) ||
      made.segment.end != words + 1 || made.segment.is_read_only || made.more_segments != nullptr ||
      made.segment_with_space != At(arena, offsetof(Arena, segment))) {
    return false;
  }

  capnp::_::StructBuilder root = pointer.initStruct({kData, kPointers});
  const auto root_of_library = Load<StructBuilder>(&root, 0);
  const std::array<uint64_t, kWords> words_of_library = builder.memory;
  const uint64_t used_by_library = WordsInUse(builder, words);
  builder.memory = {};
  Restart(builder, words);
  root = InitRootStruct(builder, words, {kData, kPointers});
  if (!Same(Load<StructBuilder>(&root, 0), root_of_library) || builder.memory != words_of_library ||
      WordsInUse(builder, words) != used_by_library || used_by_library != 1 + kData + kPointers) {
    return false;
  }
  static constexpr uint64_t kExternal = 0;
  builder.getOrphanage().referenceExternalData(
      {reinterpret_cast<const uint8_t*>(&kExternal), sizeof(kExternal)});
  TrialBuilder with_capability;
  with_capability.root().getCapTable()->injectCap(kj::Own<capnp::ClientHook>());
  return WordsInUse(builder, words) == 0 && WordsInUse(with_capability, with_capability.words()) == 0;
}

bool ReaderIsKnown() {
  using Arena = MessageReader::ReaderArena;
  TrialBuilder message;
  message.root().initStruct({kData, kPointers});
  const kj::ArrayPtr<const capnp::word> words = {message.words(), kWords};
  const capnp::ReaderOptions limits = {.traversalLimitInWords = 100, .nestingLimit = 10};

  TrialReader of_library(words, limits);
  capnp::_::PointerReader pointer = of_library.root();
  const capnp::_::StructReader root_of_library = pointer.getStruct(nullptr);
  void* const arena = At(&of_library, offsetof(MessageReader, arena));
  const void* const segment = At(arena, offsetof(Arena, segment));
  const auto made = Load<MessageReader>(&of_library, 0);
  if (made.traversal_words_max != limits.traversalLimitInWords || made.nesting_max != limits.nestingLimit ||
      made.arena.message != &of_library || made.arena.words_left != 100 - 2 - kData - kPointers ||
      !IsFirst(made.arena.segment, arena, words, At(arena, offsetof(Arena, words_left))) ||
      Load<StructReader>(&root_of_library, 0).segment != segment) {
    return false;
  }

  // Has read another message before.
  static constexpr uint64_t kOther[2] = {};
  TrialReader reader({reinterpret_cast<const capnp::word*>(kOther), 2}, capnp::ReaderOptions());
  capnp::_::StructReader root = reader.root().getStruct(nullptr);
  const bool is_read = RestartAtRootStruct(reader, words, limits, pointer.getCapTable(), root);
  const auto read = Load<StructReader>(&root, 0);
  return is_read && Same(read, Load<StructReader>(&root_of_library, 0)) &&
         read.segment ==
             At(&reader, static_cast<const char*>(segment) - reinterpret_cast<const char*>(&of_library)) &&
         Load<MessageReader>(&reader, 0).arena.words_left == made.arena.words_left;
}

}  // namespace

bool Known() {
  static const bool known = [] {
    try {
      return kVersionIsKnown && BuilderIsKnown() && ReaderIsKnown();
    } catch (...) {  // The library refuses the trial.
      return false;
    }
  }();
  return known;
}

}  // namespace hawser::transport::capnp_layout
