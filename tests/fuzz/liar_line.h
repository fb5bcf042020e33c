#ifndef HAWSER_TESTS_FUZZ_LIAR_LINE_H_
#define HAWSER_TESTS_FUZZ_LIAR_LINE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::fuzz {

// What a liar sends and receives above transport/: rpc/ as the other side sees it.
class LiarWords {
 public:
  // Those of a message that is right, as far as transport/ can tell: both a multiple of 8. The body is the
  // first segment; empty: there is none.
  virtual std::string Envelope(Script& script, bool request) = 0;
  virtual std::string Body(Script& script, bool request) = 0;
  // A request or response of the victim.
  virtual void Hear(const transport::ParsedMessage& message) = 0;

 protected:
  ~LiarWords() = default;
};

// Registered memory of a liar: a part for each line to receive into and one to send from, then what may be
// granted, and what READs are for.
class LiarMemory {
 public:
  static constexpr size_t kBufferBytes = 2048;  // Twice what is agreed.
  static constexpr size_t kReceives = 24;
  static constexpr size_t kSends = 64;
  static constexpr size_t kLinesMax = 8;
  static constexpr size_t kSinkBytes = 512 << 10;

  explicit LiarMemory(fabric::Fabric& fabric);

  uint8_t* receive(size_t line, size_t number) const { return buffer(line, number); }
  uint8_t* send(size_t line, size_t number) const { return buffer(line, kReceives + number % kSends); }
  // 300,000 bytes and more from each of the first 256 times 64. Each 64 bytes are, as Cap'n Proto, a null
  // pointer and, a word on, where a far pointer may lead to, a list of 40 bytes.
  uint8_t* readable() const { return memory_ + kLinesMax * kLineBytes; }
  uint8_t* sink() const { return readable() + kReadableBytes; }
  uint32_t lkey() const { return region_->lkey(); }

 private:
  static constexpr size_t kLineBytes = (kReceives + kSends) * kBufferBytes;
  static constexpr size_t kReadableBytes = 512 << 10;

  uint8_t* buffer(size_t line, size_t number) const {
    return memory_ + line * kLineBytes + number * kBufferBytes;
  }

  uint8_t* const memory_;
  const std::unique_ptr<fabric::MemoryRegion> region_;
};

// One connection, as the liar sees it: what it has posted, and what it knows of the exchanges. It also checks
// the victim: until the liar lies there, the victim must follow the protocol; after that, its messages must
// still be well-formed.
class LiarLine final : public fabric::ConnectionHandler {
 public:
  static constexpr uint16_t kSlots = 4;
  // In wr_ids, beside the index of the line from bit 24 on; else it is the number of a receive.
  static constexpr uint64_t kSendId = 1 << 20;
  static constexpr uint64_t kReadId = 2 << 20;

  // `asks`: this side sends the requests. `memory` and `words` outlive it. `words` may be null.
  LiarLine(fabric::Fabric& fabric, fabric::CompletionQueue& completion_queue, const LiarMemory& memory,
           LiarWords* words, size_t index, bool asks);

  void OnEstablished(absl::string_view private_data) override;
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status&) override { ended = true; }

  bool carries() const { return established && !ended; }

  // Posts a SEND of all that fits a buffer.
  void Post(absl::string_view bytes);
  // Posts a READ from what `entry` says, or a WRITE to it.
  void PostRead(const transport::TableEntry& entry, fabric::Opcode opcode);
  void OnCompletion(const fabric::Completion& completion);
  // What an honest side says in Header::credits of a message that is no request, and has `bytes`.
  void SayCredits(std::string& bytes) const;

  const size_t index;
  const bool asks;
  std::unique_ptr<fabric::QueuePair> queue_pair;
  uint32_t features = 0;            // From the victim's handshake, if it dialed, but for kFeatureCredits.
  transport::SessionToken session;  // From its answer, if the liar dialed.
  bool established = false;
  bool ended = false;
  bool lied = false;
  bool receives = true;
  uint16_t slots = kSlots;
  bool with_credits = false;  // Offered by this side, then agreed.
  uint16_t given = 2;         // Credits ever, by the side that answers.
  uint32_t credits = 2;       // Less those that were returned.
  std::string last;
  std::string held;

  // Where this side asks.
  struct Asked {
    uint32_t generation = 0;
    bool busy = false;
    std::vector<transport::TableEntry> granted;  // With its last response.
  };
  std::vector<Asked> asked{kSlots};
  // Where it answers: what was asked, and not answered.
  struct Question {
    uint16_t slot;
    uint32_t generation;
    std::vector<transport::TableEntry> granted;
  };
  std::vector<Question> questions;

  uint32_t control_generation = 0;
  bool control_waits = false;
  std::vector<uint32_t> controls;  // The victim's, not answered.
  int reads = 0;
  std::vector<uint32_t> rkeys;  // Granted, in turn.

 private:
  void PostReceive(size_t number);
  void Hear(absl::string_view bytes);
  void HearCredits(const transport::Header& header);
  void HearRequest(const transport::Header& header, std::vector<transport::TableEntry> granted);
  void HearResponse(const transport::Header& header, std::vector<transport::TableEntry> granted);

  const LiarMemory& memory_;
  LiarWords* const words_;
  size_t sends_ = 0;
  std::map<uint16_t, uint32_t> generations_;  // Those of the victim's requests.
  uint32_t peer_control_generation_ = 0;
};

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_LIAR_LINE_H_
