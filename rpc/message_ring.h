#ifndef HAWSER_RPC_MESSAGE_RING_H_
#define HAWSER_RPC_MESSAGE_RING_H_

// Messages in memory of a server, which a client WRITEs and the server polls:
//
//   absl::StatusOr<hawser::SharedMemory> memory = server.Share(64 << 10);
//   if (!memory.ok()) return memory.status();
//   absl::StatusOr<hawser::MessageRing> ring = hawser::MessageRing::Create(memory->bytes());
//   if (!ring.ok()) return ring.status();
//   tickets.Lend(*std::move(memory));  // Its handler grants kReadWrite, to one client. In that client:
//   auto opened = TablesStub(channel).Open().Send().Wait();
//   if (!opened.ok()) return opened.status();
//   hawser::RemoteRing remote(hawser::RemoteMemory(channel, (*opened)->getTable()));
//   absl::Status sent = remote.Send("a message");
//   if (!sent.ok()) return sent;
//   absl::StatusOr<bool> came = ring->Receive(message);  // Of the server, whenever it likes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/remote_memory.h"

// A ring of messages in memory of a server: one client WRITEs them, and the server polls. No handler runs,
// and over RDMA no thread of the server's until it looks.
//
// The bytes of a WRITE arrive in any order, and those of one WRITE between those of another. So nothing that
// is written behind a message says that the message is there: each byte says it of itself. It carries 7 bits
// of a message, and a bit that changes with each lap of the ring. The server takes a word once all 8 bytes
// have the bit of this lap. Where memory is free again, the client learns by a READ of what the server has
// taken.
namespace hawser {

// Where words are in a ring, and what is in them. A position counts words from the beginning of the ring's
// life; it never wraps.
class RingLayout {
 public:
  static constexpr size_t kWordBytes = 8;
  static constexpr size_t kBytesInWord = 7;  // Of a message.
  // What the server has taken: a position, twice. One of the two is whole in a READ that is cut in one place,
  // which happens over iWARP, and they are equal only if both are a position that was there.
  static constexpr size_t kHeadBytes = 2 * kWordBytes;

  // InvalidArgument: there is no room for a message, or it does not begin at a multiple of 8.
  static absl::StatusOr<RingLayout> Of(uint64_t size_bytes);

  uint64_t words() const { return words_; }
  // The longest message.
  uint64_t message_bytes_max() const { return (words_ - 1) * kBytesInWord; }
  // Words of a message: the first has its length.
  static uint64_t WordsOf(uint64_t bytes) { return 1 + (bytes + kBytesInWord - 1) / kBytesInWord; }
  uint64_t OffsetOf(uint64_t position) const { return kHeadBytes + position % words_ * kWordBytes; }

  // Of the word at `position`, which carries the low 56 bits of `value`.
  uint64_t Encode(uint64_t position, uint64_t value) const;
  // False: not all of it has arrived.
  bool Decode(uint64_t position, uint64_t word, uint64_t& value) const;

 private:
  explicit RingLayout(uint64_t words) : words_(words) {}
  uint64_t LapBits(uint64_t position) const;

  uint64_t words_;
};

// The server's end.
// Thread:   one at a time.
// Lifetime: the memory outlives it.
class MessageRing {
 public:
  // In this memory, to which no client has a grant yet: it is set to 0. InvalidArgument: it is too small, or
  // begins at no multiple of 8.
  static absl::StatusOr<MessageRing> Create(absl::Span<uint8_t> memory);

  uint64_t message_bytes_max() const { return layout_.message_bytes_max(); }

  // True: `message` is the next one. False: it is not there, or not yet all of it. DataLoss: the client has
  // written what is no message; the same from then on.
  absl::StatusOr<bool> Receive(std::string& message);

 private:
  MessageRing(RingLayout layout, uint8_t* memory) : layout_(layout), memory_(memory) {}
  bool Load(uint64_t position, uint64_t& value) const;

  RingLayout layout_;
  uint8_t* memory_;
  uint64_t taken_ = 0;  // The position behind the last message.
  absl::Status broken_;
};

// What a client writes, and where. Without the WRITEs themselves: RemoteRing has them.
class RingWriter {
 public:
  struct Write {
    uint64_t offset = 0;
    std::vector<uint8_t> bytes;
  };

  explicit RingWriter(RingLayout layout) : layout_(layout) {}

  uint64_t message_bytes_max() const { return layout_.message_bytes_max(); }
  // One WRITE, or two at the end of the ring, in any order. ResourceExhausted: the ring is full, as far as
  // OnHead() has said. InvalidArgument: the message is too long.
  absl::StatusOr<std::vector<Write>> Add(absl::string_view message);
  // A READ of RingLayout::kHeadBytes at offset 0 has returned these. DataLoss: no server has written them.
  // Unavailable: they are of two moments; READ them again.
  absl::Status OnHead(absl::Span<const uint8_t> head);

 private:
  RingLayout layout_;
  uint64_t written_ = 0;  // The position behind the last message.
  uint64_t taken_ = 0;    // That of the server, as of the last READ.
};

// The client's end.
// Thread:   one at a time. Send() waits: not in a handler or callback.
class RemoteRing {
 public:
  // `memory`: with READ and WRITE, and all of what the server has made a ring.
  explicit RemoteRing(RemoteMemory memory);

  // OK: it is in the server's memory, as a WRITE is (RemoteOperation::Wait()). ResourceExhausted: the ring is
  // full; the message was not sent, and may be later. InvalidArgument: it is too long, or the memory is none
  // for a ring. Any other: a WRITE or a READ has failed. If it was a WRITE, the message may be there or not,
  // and the ring has ended, since that WRITE could arrive yet, on top of a later one: each call returns that
  // Status.
  absl::Status Send(absl::string_view message, const RemoteOptions& options = {});

 private:
  absl::Status ReadHead(const RemoteOptions& options);

  RemoteMemory memory_;
  absl::Status ended_;
  RingWriter writer_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_MESSAGE_RING_H_
