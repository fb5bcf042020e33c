#ifndef HAWSER_RPC_MESSAGE_RING_H_
#define HAWSER_RPC_MESSAGE_RING_H_

// A ring of messages in memory of a server. A client WRITEs them, and the server polls:
//
//   absl::StatusOr<hawser::SharedMemory> memory = server.Share(64 << 10);
//   if (!memory.ok()) return memory.status();
//   absl::StatusOr<hawser::MessageRing> ring = hawser::MessageRing::Create(memory->bytes());
//   if (!ring.ok()) return ring.status();
//   tickets.Lend(*std::move(memory));  // Its handler grants kReadWrite to one client, which does this:
//   auto opened = TablesStub(channel).Open().Send().Wait();
//   if (!opened.ok()) return opened.status();
//   hawser::RemoteRing remote(hawser::RemoteMemory(channel, (*opened)->getTable()));
//   absl::Status sent = remote.Send("a message");
//   if (!sent.ok()) return sent;
//   absl::StatusOr<bool> came = ring->Receive(message);  // The server, whenever it likes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/remote_memory.h"

// One client WRITEs the messages, and the server polls. No handler runs, and over RDMA no thread of the
// server runs until it looks.
//
// The bytes of a WRITE arrive in any order, and bytes of different WRITEs arrive interleaved. So nothing that
// is written behind a message can say that the message is there. Instead each byte carries 7 bits of a
// message and a tag bit, which changes with each lap of the ring. The server accepts a word once the tag bits
// of all its 8 bytes are those of the current lap. The client learns what the server has taken, and so which
// words are free again, from a READ of the head of the ring.
//
// One RemoteRing serves a ring in all its life: a second one does not know where the first has stopped, and
// its Send() refuses the ring (FailedPrecondition). Of two that begin at the same moment at most one gets it,
// and perhaps both refuse it (RingClaim). To go on after an end, or with another client:
//   1. The server revokes the memory (SharedMemory::Revoke()), after which no late WRITE can arrive. It may
//      still Receive() the messages that are there.
//   2. It shares memory (Server::Share()), calls MessageRing::Create(), and grants that.
//   3. The client makes a RemoteRing of the new ticket.
//
// Over iWARP the OK of a WRITE does not mean that it has arrived (RemoteOperation::Wait()). If the connection
// of the one-sided operations breaks afterwards, it never arrives, and no Status tells: later messages cross
// the next connection, but Receive() returns false for ever, at the hole. So over iWARP the failure of any
// one-sided operation of the channel, also on other memory, is the end of the ring: go on as above.
namespace hawser {

// Where words are in a ring, and what is in them. A position counts words from the beginning of the ring's
// life; it never wraps.
class RingLayout {
 public:
  static constexpr size_t kWordBytes = 8;
  static constexpr size_t kBytesInWord = 7;  // Bytes of a message.
  // The head: the number of words of the ring, the position up to which the server has taken them, and a
  // checksum of both. A READ may copy its bytes at different times. Where a READ copies 8 aligned bytes at
  // once (TCP, InfiniBand, RoCE) the checksum shows every mixture: two positions have two checksums. Over
  // iWARP, where a word may be torn, it misses a mixture with a probability of 2^-64.
  static constexpr size_t kHeadBytes = 3 * kWordBytes;
  struct Head {
    uint64_t words = 0;
    uint64_t taken = 0;
  };
  static std::array<uint64_t, 3> EncodeHead(const Head& head);
  // kHeadBytes that a READ has returned. nullopt: they are a mixture, or no head.
  static std::optional<Head> DecodeHead(absl::Span<const uint8_t> read);

  // InvalidArgument: there is no room for a message.
  static absl::StatusOr<RingLayout> Of(uint64_t size_bytes);

  uint64_t words() const { return words_; }
  // Behind all words: what RingClaim needs.
  static constexpr size_t kClaimBytes = 2 * kWordBytes;
  uint64_t claim_offset() const { return kHeadBytes + words_ * kWordBytes; }
  // The longest message.
  uint64_t message_bytes_max() const { return (words_ - 1) * kBytesInWord; }
  // Words of a message: the first has its length.
  static uint64_t WordsOf(uint64_t bytes) { return 1 + (bytes + kBytesInWord - 1) / kBytesInWord; }
  uint64_t OffsetOf(uint64_t position) const { return kHeadBytes + position % words_ * kWordBytes; }

  // The word at `position`, which carries the low 56 bits of `value`.
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
  // Makes this memory a ring; what it held is gone. No client may have a grant of it yet. InvalidArgument: it
  // is null, too small, or does not begin at a multiple of 8.
  static absl::StatusOr<MessageRing> Create(absl::Span<uint8_t> memory);
  // What was moved from receives nothing: FailedPrecondition.
  MessageRing(MessageRing&& other) noexcept;
  MessageRing& operator=(MessageRing&& other) noexcept;

  uint64_t message_bytes_max() const { return layout_.message_bytes_max(); }

  // True: `message` is the next one. False: the next message has not arrived, or not whole; `message` is
  // unchanged. DataLoss: the client has written what no RemoteRing writes. Each later call returns this
  // Status, and `message` is undefined.
  //
  // A call that returns false looks only at words that earlier calls have not seen, and at the first that is
  // missing: a client that never completes a message costs one load a call.
  absl::StatusOr<bool> Receive(std::string& message);

 private:
  MessageRing(RingLayout layout, uint8_t* memory) : layout_(layout), memory_(memory) {}
  bool Load(uint64_t position, uint64_t& value) const;
  // The head says that the words up to `taken_` are free.
  void StoreHead();

  RingLayout layout_;
  uint8_t* memory_;
  uint64_t taken_ = 0;   // The position behind the last message.
  uint64_t seen_ = 0;    // Words of the next message that have arrived, from its first one on.
  uint64_t length_ = 0;  // Bytes of the next message, if `seen_` > 0.
  absl::Status broken_;
};

// How a client gets a ring for itself. Of those that begin at the same moment at most one does; perhaps none.
// (It is the splitter of Lamport's fast mutual exclusion, for WRITEs that may be late.) Each step is a WRITE
// or a READ of one of two words, which are 0 at first, and begins when the one before is complete:
//   name := mine; if name != mine: lost; if door != 0: lost
//   door := mine; if door != mine: lost; if name != mine: lost
// Over iWARP a WRITE that is complete need not have arrived. If its connection is lost, it may do so when the
// next one has carried later steps, or never. So each one counts only once a READ has found it.
//
// Say A and B get it, and the name of A arrives before that of B. In its last step A has found its own name,
// so that of B had not arrived; and before that its own number at the door, which is 0 never again. B looks
// at the door after it has found its own name, and finds it shut. (A number is odd: where a READ copies bytes
// of two of them, that is not 0 either.)
class RingClaim {
 public:
  struct Step {
    bool writes = false;
    size_t word = 0;  // Of the two.
    uint64_t value = 0;
  };

  // `mine`: an odd number that no other client has.
  explicit RingClaim(uint64_t mine) : mine_(mine) {}

  // What to do next; nullopt: the ring is this client's.
  std::optional<Step> Next() const;
  // It is done. `read`: what a READ has returned. FailedPrecondition: another client has begun. Aborted: a
  // WRITE of this one was lost.
  absl::Status OnDone(uint64_t read);

 private:
  uint64_t mine_;
  size_t done_ = 0;  // Steps.
};

// What a client writes, and where. RemoteRing does the WRITEs and READs.
class RingWriter {
 public:
  struct Write {
    uint64_t offset = 0;
    std::vector<uint8_t> bytes;
  };

  explicit RingWriter(RingLayout layout) : layout_(layout) {}

  uint64_t message_bytes_max() const { return layout_.message_bytes_max(); }
  // The position up to which the server has taken words, as far as OnHead() knows.
  uint64_t taken() const { return taken_; }

  // Where RingClaim has its words.
  uint64_t claim_offset() const { return layout_.claim_offset(); }
  // The first READ of this writer has returned these kFirstReadBytes: the head and the first word, at offset
  // 0, then the words of RingClaim. FailedPrecondition: no ring of this size is there, or one that another
  // client has begun with.
  static constexpr size_t kFirstBytes = RingLayout::kHeadBytes + RingLayout::kWordBytes;
  static constexpr size_t kFirstReadBytes = kFirstBytes + RingLayout::kClaimBytes;
  absl::Status OnFirstRead(absl::Span<const uint8_t> read) const;

  // The WRITEs of the next message: one, or two at the end of the ring, in any order. ResourceExhausted: the
  // ring is full, as far as OnHead() knows. InvalidArgument: the message is too long.
  absl::StatusOr<std::vector<Write>> WritesOf(absl::string_view message) const;
  // They are posted, or may be: the next message comes behind this one, which has that many bytes.
  void OnPosted(uint64_t message_bytes);

  // A READ of RingLayout::kHeadBytes at offset 0 has returned these. Unavailable: they are a mixture; READ
  // them again. DataLoss: no server has written them. InvalidArgument: another number of bytes.
  absl::Status OnHead(absl::Span<const uint8_t> head);

 private:
  RingLayout layout_;
  uint64_t written_ = 0;  // The position behind the last message.
  uint64_t taken_ = 0;
};

// The client's end.
// Thread:   one at a time. Send() waits: not in a handler or callback.
class RemoteRing {
 public:
  // `memory`: a ticket with READ and WRITE for all of what the server has made a ring.
  explicit RemoteRing(RemoteMemory memory);
  // What was moved from has ended: FailedPrecondition.
  RemoteRing(RemoteRing&& other) noexcept;
  RemoteRing& operator=(RemoteRing&& other) noexcept;

  // The timeout is for all READs and WRITEs of the call together. The first Send() READs the head, and claims
  // the ring, in seven round trips; later ones READ it if the ring seems full, up to 16 times if the server
  // keeps changing it.
  //
  // OK: the WRITE is complete. Over TCP, InfiniBand or RoCE the message is in the server's memory; over iWARP
  // it may yet be lost (see the top).
  // ResourceExhausted: the ring is full, or this process or the server has no room for the operation. The
  // message was not sent, and may be later.
  // InvalidArgument: the message is too long, or the memory too small for a ring.
  // Any other: see ended(). If that is OK, the message was not sent, since a READ failed or the timeout
  // passed before the WRITE, and it may be sent later.
  absl::Status Send(absl::string_view message, const RemoteOptions& options = {});

  // Not OK: the ring has ended for this client, and each Send() returns this. The top says how to go on.
  // Aborted: a WRITE failed, of a message or of the claim, or one of the claim was lost. The message may be
  // there or not, and the WRITE could still arrive, on top of a later message. The text has the cause.
  // FailedPrecondition: the memory is no ring of this size, or one that another RemoteRing has used, or
  // begins with at this moment. DataLoss: the head has what no server writes. InvalidArgument: the memory is
  // too small.
  const absl::Status& ended() const { return ended_; }

 private:
  class TimeLeft;

  absl::Status ReadFirst(const TimeLeft& time);
  absl::Status Claim(const TimeLeft& time);
  absl::Status ReadHead(const TimeLeft& time);
  absl::Status Post(const std::vector<RingWriter::Write>& writes, uint64_t message_bytes,
                    const TimeLeft& time);

  RemoteMemory memory_;
  absl::Status ended_;
  RingWriter writer_;
  bool is_checked_ = false;  // The first READ has shown a ring that is new.
  RingClaim claim_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_MESSAGE_RING_H_
