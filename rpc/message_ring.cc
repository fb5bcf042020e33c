#include "hawser/rpc/message_ring.h"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/base/endian.h"

namespace hawser {
namespace {

constexpr size_t kWordBytes = RingLayout::kWordBytes;
constexpr size_t kBytesInWord = RingLayout::kBytesInWord;
constexpr uint64_t kHighBits = 0x8080808080808080;
constexpr int kBitsInByte = 7;
constexpr uint64_t kBitsOfByte = 0x7f;

// READs of the head in one Send(), if each returns a mixture.
constexpr int kHeadTriesMax = 16;

std::atomic_ref<uint64_t> WordAt(uint8_t* address) {
  return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(address));
}

// Words in memory are little-endian on every host.
uint64_t FromMemory(uint64_t word) { return LoadLittle64(reinterpret_cast<const uint8_t*>(&word)); }
uint64_t ForMemory(uint64_t value) {
  uint64_t word;
  StoreLittle64(reinterpret_cast<uint8_t*>(&word), value);
  return word;
}

// Each step maps different sums to different sums, so two positions of one ring have two checksums.
uint64_t ChecksumOf(const RingLayout::Head& head) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  uint64_t sum = head.words * kOdd + head.taken;
  for (int step = 0; step < 3; ++step) sum = (sum ^ sum >> 32) * kOdd;
  return sum ^ sum >> 32;
}

}  // namespace

// ---- RingLayout

absl::StatusOr<RingLayout> RingLayout::Of(uint64_t size_bytes) {
  constexpr size_t kOther = kHeadBytes + kClaimBytes;
  const uint64_t words = size_bytes < kOther ? 0 : (size_bytes - kOther) / kWordBytes;
  if (words < 2) {
    return absl::InvalidArgumentError(absl::StrCat("a ring of messages in ", size_bytes,
                                                   " bytes: it needs at least ", kOther + 2 * kWordBytes));
  }
  return RingLayout(words);
}

std::array<uint64_t, 3> RingLayout::EncodeHead(const Head& head) {
  return {ForMemory(head.words), ForMemory(head.taken), ForMemory(ChecksumOf(head))};
}

std::optional<RingLayout::Head> RingLayout::DecodeHead(absl::Span<const uint8_t> read) {
  if (read.size() != kHeadBytes) return std::nullopt;
  const Head head{LoadLittle64(read.data()), LoadLittle64(read.data() + kWordBytes)};
  if (LoadLittle64(read.data() + 2 * kWordBytes) != ChecksumOf(head)) return std::nullopt;
  return head;
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
  if (memory.data() == nullptr) return absl::InvalidArgumentError("the memory of a ring of messages is null");
  if (reinterpret_cast<uintptr_t>(memory.data()) % kWordBytes != 0) {
    return absl::InvalidArgumentError("the memory of a ring of messages begins at no multiple of 8");
  }
  std::fill(memory.begin(), memory.end(), uint8_t{0});
  MessageRing ring(*layout, memory.data());
  ring.StoreHead();
  return ring;
}

MessageRing::MessageRing(MessageRing&& other) noexcept : MessageRing(other.layout_, other.memory_) {
  *this = std::move(other);
}

MessageRing& MessageRing::operator=(MessageRing&& other) noexcept {
  layout_ = other.layout_;
  memory_ = other.memory_;
  taken_ = other.taken_;
  seen_ = other.seen_;
  length_ = other.length_;
  absl::Status broken =
      std::exchange(other.broken_, absl::FailedPreconditionError("the MessageRing was moved from"));
  broken_ = std::move(broken);
  return *this;
}

// Each store releases: the loads of the words that the client may overwrite now come before it.
void MessageRing::StoreHead() {
  const std::array<uint64_t, 3> head = RingLayout::EncodeHead({layout_.words(), taken_});
  for (size_t i = 0; i < head.size(); ++i) {
    WordAt(memory_ + i * kWordBytes).store(head[i], std::memory_order_release);
  }
}

// One load of the word: its bytes may change until all have arrived.
bool MessageRing::Load(uint64_t position, uint64_t& value) const {
  const uint64_t word = WordAt(memory_ + layout_.OffsetOf(position)).load(std::memory_order_relaxed);
  return layout_.Decode(position, FromMemory(word), value);
}

absl::StatusOr<bool> MessageRing::Receive(std::string& message) {
  if (!broken_.ok()) return broken_;
  if (seen_ == 0) {
    if (!Load(taken_, length_)) return false;
    if (length_ > layout_.message_bytes_max()) {
      return broken_ =
                 absl::DataLossError(absl::StrCat("the client has written a message of ", length_,
                                                  " bytes into a ring for ", layout_.message_bytes_max()));
    }
    seen_ = 1;
  }
  const uint64_t words = RingLayout::WordsOf(length_);
  uint64_t value = 0;
  for (; seen_ < words; ++seen_) {
    if (!Load(taken_ + seen_, value)) return false;
  }
  message.resize(length_);
  for (uint64_t i = 1; i < words; ++i) {
    if (!Load(taken_ + i, value)) {
      return broken_ = absl::DataLossError("the client has changed a message that had arrived");
    }
    const uint64_t at = (i - 1) * kBytesInWord;
    uint8_t bytes[kWordBytes];
    StoreLittle64(bytes, value);
    memcpy(message.data() + at, bytes, std::min<uint64_t>(kBytesInWord, length_ - at));
  }
  taken_ += words;
  seen_ = 0;
  StoreHead();
  return true;
}

// ---- RingClaim

namespace {

constexpr size_t kName = 0, kDoor = 1;
enum class Does : uint8_t { kWrite, kFindMine, kFindZero };
struct ClaimStep {
  size_t word;
  Does does;
};
constexpr ClaimStep kClaimSteps[] = {{kName, Does::kWrite},    {kName, Does::kFindMine},
                                     {kDoor, Does::kFindZero}, {kDoor, Does::kWrite},
                                     {kDoor, Does::kFindMine}, {kName, Does::kFindMine}};

absl::Status IsUsed() {
  return absl::FailedPreconditionError(
      "another RemoteRing has used this ring of messages, or begins to, and a ring has one in its life: the "
      "server has to revoke the memory, share and create a ring anew, and grant that");
}

absl::Status IsLost() {
  return absl::AbortedError(
      "the ring of messages has ended, since a WRITE that claims it has not arrived: its connection was "
      "lost");
}

}  // namespace

std::optional<RingClaim::Step> RingClaim::Next() const {
  if (done_ == std::size(kClaimSteps)) return std::nullopt;
  const ClaimStep& step = kClaimSteps[done_];
  return Step{step.does == Does::kWrite, step.word, mine_};
}

absl::Status RingClaim::OnDone(uint64_t read) {
  const ClaimStep& step = kClaimSteps[done_];
  if (step.does == Does::kFindZero && read != 0) return IsUsed();
  if (step.does == Does::kFindMine && read != mine_) return read == 0 ? IsLost() : IsUsed();
  ++done_;
  return absl::OkStatus();
}

// ---- RingWriter

absl::Status RingWriter::OnFirstRead(absl::Span<const uint8_t> read) const {
  if (read.size() != kFirstReadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the beginning of a ring has ", kFirstReadBytes, " bytes, not ", read.size()));
  }
  const std::optional<RingLayout::Head> head = RingLayout::DecodeHead(read.first(RingLayout::kHeadBytes));
  if (head.has_value() && head->words != layout_.words()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server has made a ring of ", head->words, " words, and the ticket is for ",
                     layout_.words(), ": grant exactly the memory that MessageRing::Create() got"));
  }
  const bool is_claimed = LoadLittle64(read.data() + kFirstBytes) != 0 ||
                          LoadLittle64(read.data() + kFirstBytes + kWordBytes) != 0;
  // No head, while a server is taking messages that another client has written, is one that is used.
  const bool is_used = head.has_value()
                           ? head->taken != 0 || LoadLittle64(read.data() + RingLayout::kHeadBytes) != 0
                           : LoadLittle64(read.data()) == layout_.words();
  if (is_used) return IsUsed();
  if (!head.has_value()) {
    return absl::FailedPreconditionError(
        "the memory is no ring of messages: the server has not called MessageRing::Create() with it");
  }
  if (is_claimed) return IsUsed();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RingWriter::Write>> RingWriter::WritesOf(absl::string_view message) const {
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
  return writes;
}

void RingWriter::OnPosted(uint64_t message_bytes) { written_ += RingLayout::WordsOf(message_bytes); }

absl::Status RingWriter::OnHead(absl::Span<const uint8_t> read) {
  if (read.size() != RingLayout::kHeadBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the head of a ring has ", RingLayout::kHeadBytes, " bytes, not ", read.size()));
  }
  const std::optional<RingLayout::Head> head = RingLayout::DecodeHead(read);
  if (!head.has_value()) return absl::UnavailableError("the server is just taking a message");
  if (head->words != layout_.words() || head->taken < taken_ || head->taken > written_) {
    return absl::DataLossError(absl::StrCat(
        "the server has taken the words of a ring up to ", head->taken, ", after ", taken_, ", and ",
        written_, " were written; it says that the ring has ", head->words, " of ", layout_.words()));
  }
  taken_ = head->taken;
  return absl::OkStatus();
}

// ---- RemoteRing

// What is left of the timeout of one Send().
class RemoteRing::TimeLeft {
 public:
  explicit TimeLeft(absl::Duration timeout) : timeout_(timeout) {}

  bool is_over() const { return Get() <= absl::ZeroDuration(); }
  // The options of the next operation.
  RemoteOptions ForNext() const { return {.timeout = std::max(Get(), absl::ZeroDuration())}; }

 private:
  absl::Duration Get() const {
    return timeout_ - absl::FromChrono(std::chrono::steady_clock::now() - start_);
  }

  const absl::Duration timeout_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

RemoteRing::RemoteRing(RemoteMemory memory)
    : memory_(std::move(memory)),
      ended_(RingLayout::Of(memory_.size_bytes()).status()),
      // Unused if the memory is too small.
      writer_(RingLayout::Of(std::max<uint64_t>(memory_.size_bytes(), 64)).value()),
      claim_(memory_.Random() | 1) {}

RemoteRing::RemoteRing(RemoteRing&& other) noexcept
    : memory_(std::move(other.memory_)),
      ended_(std::exchange(other.ended_, absl::FailedPreconditionError("the RemoteRing was moved from"))),
      writer_(other.writer_),
      is_checked_(other.is_checked_),
      claim_(other.claim_) {}

RemoteRing& RemoteRing::operator=(RemoteRing&& other) noexcept {
  memory_ = std::move(other.memory_);
  absl::Status ended =
      std::exchange(other.ended_, absl::FailedPreconditionError("the RemoteRing was moved from"));
  ended_ = std::move(ended);
  writer_ = other.writer_;
  is_checked_ = other.is_checked_;
  claim_ = other.claim_;
  return *this;
}

absl::Status RemoteRing::ReadFirst(const TimeLeft& time) {
  uint8_t first[RingWriter::kFirstReadBytes];
  absl::Status read =
      memory_
          .Read({{0, RingWriter::kFirstBytes}, {writer_.claim_offset(), RingLayout::kClaimBytes}}, first,
                time.ForNext())
          .Wait();
  if (!read.ok()) return read;
  ended_ = writer_.OnFirstRead(first);
  is_checked_ = ended_.ok();
  return ended_;
}

// Where it stops because of a READ, a later Send() goes on.
absl::Status RemoteRing::Claim(const TimeLeft& time) {
  while (const std::optional<RingClaim::Step> step = claim_.Next()) {
    if (time.is_over()) {
      return absl::DeadlineExceededError("the timeout passed before the ring was claimed: it was not sent");
    }
    uint8_t word[kWordBytes];
    StoreLittle64(word, step->value);
    const uint64_t offset = writer_.claim_offset() + step->word * kWordBytes;
    absl::Status status = (step->writes ? memory_.Write(offset, word, time.ForNext())
                                        : memory_.Read(offset, word, time.ForNext()))
                              .Wait();
    if (!status.ok() && (!step->writes || absl::IsResourceExhausted(status))) return status;
    if (!status.ok()) {
      return ended_ = absl::AbortedError(absl::StrCat(
                 "the ring of messages has ended, since a WRITE that claims it failed: ", status.ToString()));
    }
    ended_ = claim_.OnDone(LoadLittle64(word));
    if (!ended_.ok()) return ended_;
  }
  return absl::OkStatus();
}

absl::Status RemoteRing::ReadHead(const TimeLeft& time) {
  for (int tries = 0; tries < kHeadTriesMax; ++tries) {
    uint8_t head[RingLayout::kHeadBytes];
    if (absl::Status read = memory_.Read(0, head, time.ForNext()).Wait(); !read.ok()) return read;
    const absl::Status status = writer_.OnHead(head);
    if (absl::IsUnavailable(status)) continue;
    ended_ = status;
    return ended_;
  }
  // The ring is as full as the last head has said.
  return absl::OkStatus();
}

absl::Status RemoteRing::Send(absl::string_view message, const RemoteOptions& options) {
  if (!ended_.ok()) return ended_;
  const TimeLeft time(options.timeout.value_or(memory_.default_timeout()));
  if (!is_checked_) {
    if (absl::Status read = ReadFirst(time); !read.ok()) return read;
  }
  if (absl::Status claimed = Claim(time); !claimed.ok()) return claimed;
  absl::StatusOr<std::vector<RingWriter::Write>> writes = writer_.WritesOf(message);
  if (absl::IsResourceExhausted(writes.status())) {
    if (absl::Status read = ReadHead(time); !read.ok()) return read;
    writes = writer_.WritesOf(message);
  }
  if (!writes.ok()) return writes.status();
  // A WRITE that its deadline ends would end the ring.
  if (time.is_over()) {
    return absl::DeadlineExceededError("the timeout passed before the message was written: it was not sent");
  }
  return Post(*writes, message.size(), time);
}

absl::Status RemoteRing::Post(const std::vector<RingWriter::Write>& writes, uint64_t message_bytes,
                              const TimeLeft& time) {
  std::vector<RemoteOperation> operations;
  operations.reserve(writes.size());
  for (const RingWriter::Write& write : writes) {
    operations.push_back(memory_.Write(write.offset, write.bytes, time.ForNext()));
  }
  absl::Status failed;
  size_t unposted = 0;
  for (RemoteOperation& operation : operations) {
    absl::Status written = operation.Wait();
    if (absl::IsResourceExhausted(written)) ++unposted;  // Then nothing of it was posted.
    if (!written.ok() && failed.ok()) failed = std::move(written);
  }
  if (failed.ok()) {
    writer_.OnPosted(message_bytes);
  } else if (unposted < operations.size()) {
    failed = ended_ = absl::AbortedError(
        absl::StrCat("the ring of messages has ended, since a WRITE into it failed: ", failed.ToString()));
  }
  return failed;
}

}  // namespace hawser
