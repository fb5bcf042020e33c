#include "hawser/rpc/message_ring.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/endian.h"

namespace hawser {
namespace {

constexpr size_t kWordBytes = RingLayout::kWordBytes;
constexpr size_t kBytesInWord = RingLayout::kBytesInWord;
constexpr uint64_t kHighBits = 0x8080808080808080;
constexpr int kBitsInByte = 7;
constexpr uint64_t kBitsOfByte = 0x7f;

// READs of the head that is of two moments, one after the other.
constexpr int kHeadTriesMax = 16;

std::atomic_ref<uint64_t> WordAt(uint8_t* address) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address));
}

// Of words in memory, which are little-endian on every host.
uint64_t Little(uint64_t word) { return LoadLittle64(reinterpret_cast<const uint8_t*>(&word)); }

}  // namespace

// ---- RingLayout

absl::StatusOr<RingLayout> RingLayout::Of(uint64_t size_bytes) {
  const uint64_t words = size_bytes < kHeadBytes ? 0 : (size_bytes - kHeadBytes) / kWordBytes;
  if (words < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a ring of messages in ", size_bytes, " bytes: it needs at least ", kHeadBytes + 2 * kWordBytes));
  }
  return RingLayout(words);
}

// In the first lap they are set: memory that holds 0 has no message.
uint64_t RingLayout::LapBits(uint64_t position) const { return position / words_ % 2 == 0 ? kHighBits : 0; }

uint64_t RingLayout::Encode(uint64_t position, uint64_t value) const {
  uint64_t word = LapBits(position);
  for (size_t byte = 0; byte < kWordBytes; ++byte) {
    word |= (value >> (kBitsInByte * byte) & kBitsOfByte) << (8 * byte);
  }
  return word;
}

bool RingLayout::Decode(uint64_t position, uint64_t word, uint64_t& value) const {
  if ((word & kHighBits) != LapBits(position)) return false;
  value = 0;
  for (size_t byte = 0; byte < kWordBytes; ++byte) {
    value |= (word >> (8 * byte) & kBitsOfByte) << (kBitsInByte * byte);
  }
  return true;
}

// ---- MessageRing

absl::StatusOr<MessageRing> MessageRing::Create(absl::Span<uint8_t> memory) {
  const absl::StatusOr<RingLayout> layout = RingLayout::Of(memory.size());
  if (!layout.ok()) return layout.status();
  if (reinterpret_cast<uintptr_t>(memory.data()) % kWordBytes != 0) {
    return absl::InvalidArgumentError("the memory of a ring of messages begins at no multiple of 8");
  }
  std::fill(memory.begin(), memory.end(), uint8_t{0});
  return MessageRing(*layout, memory.data());
}

// One load of each word: its bytes may change until all have arrived, and not after that.
bool MessageRing::Load(uint64_t position, uint64_t& value) const {
  const uint64_t word = WordAt(memory_ + layout_.OffsetOf(position)).load(std::memory_order_relaxed);
  return layout_.Decode(position, Little(word), value);
}

absl::StatusOr<bool> MessageRing::Receive(std::string& message) {
  if (!broken_.ok()) return broken_;
  uint64_t length = 0;
  if (!Load(taken_, length)) return false;
  if (length > layout_.message_bytes_max()) {
    return broken_ =
               absl::DataLossError(absl::StrCat("the client has written a message of ", length,
                                                " bytes into a ring for ", layout_.message_bytes_max()));
  }
  const uint64_t words = RingLayout::WordsOf(length);
  // A long message that has begun to arrive is looked at from its end: that costs one load as a rule.
  uint64_t value = 0;
  if (!Load(taken_ + words - 1, value)) return false;
  message.resize(length);
  for (uint64_t i = 1; i < words; ++i) {
    if (!Load(taken_ + i, value)) return false;
    const uint64_t at = (i - 1) * kBytesInWord;
    uint8_t bytes[kWordBytes];
    StoreLittle64(bytes, value);
    memcpy(message.data() + at, bytes, std::min<uint64_t>(kBytesInWord, length - at));
  }
  taken_ += words;
  // After the loads above: then the client may write there again.
  uint64_t position;
  StoreLittle64(reinterpret_cast<uint8_t*>(&position), taken_);
  WordAt(memory_).store(position, std::memory_order_release);
  WordAt(memory_ + kWordBytes).store(position, std::memory_order_release);
  return true;
}

// ---- RingWriter

absl::StatusOr<std::vector<RingWriter::Write>> RingWriter::Add(absl::string_view message) {
  if (message.size() > layout_.message_bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", message.size(),
                                                   " bytes for a ring: up to ", layout_.message_bytes_max(),
                                                   " are possible"));
  }
  const uint64_t words = RingLayout::WordsOf(message.size());
  if (words > layout_.words() - (written_ - taken_)) {
    return absl::ResourceExhaustedError("the ring of messages is full: the server has not taken enough");
  }
  std::vector<Write> writes;
  for (uint64_t i = 0; i < words; ++i) {
    const uint64_t position = written_ + i;
    uint64_t value = message.size();
    if (i > 0) {
      const uint64_t at = (i - 1) * kBytesInWord;
      uint8_t bytes[kWordBytes] = {};
      memcpy(bytes, message.data() + at, std::min<uint64_t>(kBytesInWord, message.size() - at));
      value = LoadLittle64(bytes);
    }
    if (i == 0 || position % layout_.words() == 0) writes.push_back({layout_.OffsetOf(position), {}});
    std::vector<uint8_t>& bytes = writes.back().bytes;
    bytes.resize(bytes.size() + kWordBytes);
    StoreLittle64(bytes.data() + bytes.size() - kWordBytes, layout_.Encode(position, value));
  }
  written_ += words;
  return writes;
}

absl::Status RingWriter::OnHead(absl::Span<const uint8_t> head) {
  const uint64_t taken = LoadLittle64(head.data());
  if (taken != LoadLittle64(head.data() + kWordBytes)) {
    return absl::UnavailableError("the server is just taking a message");
  }
  if (taken < taken_ || taken > written_) {
    return absl::DataLossError(absl::StrCat("the server has taken ", taken, " words of a ring, of ", written_,
                                            " that were written"));
  }
  taken_ = taken;
  return absl::OkStatus();
}

// ---- RemoteRing

RemoteRing::RemoteRing(RemoteMemory memory)
    : memory_(std::move(memory)),
      ended_(RingLayout::Of(memory_.size_bytes()).status()),
      // Not used if there is none.
      writer_(RingLayout::Of(std::max<uint64_t>(memory_.size_bytes(), 64)).value()) {}

absl::Status RemoteRing::ReadHead(const RemoteOptions& options) {
  absl::Status status;
  for (int tries = 0; tries < kHeadTriesMax; ++tries) {
    uint8_t head[RingLayout::kHeadBytes];
    if (absl::Status read = memory_.Read(0, head, options).Wait(); !read.ok()) return read;
    status = writer_.OnHead(head);
    if (!absl::IsUnavailable(status)) return status;
  }
  return status;
}

absl::Status RemoteRing::Send(absl::string_view message, const RemoteOptions& options) {
  if (!ended_.ok()) return ended_;
  absl::StatusOr<std::vector<RingWriter::Write>> writes = writer_.Add(message);
  if (absl::IsResourceExhausted(writes.status())) {
    if (absl::Status read = ReadHead(options); !read.ok()) return read;
    writes = writer_.Add(message);
  }
  if (!writes.ok()) return writes.status();
  std::vector<RemoteOperation> operations;
  operations.reserve(writes->size());
  for (const RingWriter::Write& write : *writes) {
    operations.push_back(memory_.Write(write.offset, write.bytes, options));
  }
  for (RemoteOperation& operation : operations) {
    if (absl::Status written = operation.Wait(); !written.ok() && ended_.ok()) ended_ = std::move(written);
  }
  return ended_;
}

}  // namespace hawser
