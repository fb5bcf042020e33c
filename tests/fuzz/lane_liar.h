#ifndef HAWSER_TESTS_FUZZ_LANE_LIAR_H_
#define HAWSER_TESTS_FUZZ_LANE_LIAR_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/lane/lane_message.h"

namespace hawser::fuzz {

// Registered memory of a lying peer of lanes: what it receives into and sends from, what it lets others
// reach, and a sink for what it READs.
class LaneLiarMemory {
 public:
  static constexpr size_t kBufferBytes = 512;  // Twice the longest message.
  static constexpr size_t kReceives = 24;
  static constexpr size_t kSends = 64;
  static constexpr size_t kLinesMax = 6;
  static constexpr size_t kReachableBytes = 8192;
  static constexpr size_t kSinkBytes = 8192;
  // What it WRITEs: bytes of the sink that it has not READ into.
  static constexpr uint8_t kWritten = 0x22;

  explicit LaneLiarMemory(fabric::Fabric& fabric);

  uint8_t* receive(size_t line, size_t number) { return buffer(line, number); }
  uint8_t* send(size_t line, size_t number) { return buffer(line, kReceives + number % kSends); }
  uint8_t* reachable() { return memory_.data() + kLinesMax * kLineBytes; }
  uint8_t* sink() { return reachable() + kReachableBytes; }
  uint8_t* to_write() { return sink() + kSinkBytes; }
  uint32_t lkey() const { return region_->lkey(); }

 private:
  static constexpr size_t kLineBytes = (kReceives + kSends) * kBufferBytes;

  uint8_t* buffer(size_t line, size_t number) {
    return memory_.data() + line * kLineBytes + number * kBufferBytes;
  }

  std::vector<uint8_t> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
};

// One lane, as the liar sees it.
struct LaneLine final : fabric::ConnectionHandler {
  void OnEstablished(absl::string_view private_data) override;
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status&) override { ended = true; }

  bool carries() const { return established && !ended; }

  size_t index = 0;
  bool dialed = false;  // The victim is the owner. Otherwise the liar is.
  std::unique_ptr<fabric::QueuePair> queue_pair;
  bool established = false;
  bool ended = false;
  size_t sends = 0;

  // ---- Where the victim is the owner.
  struct Handle {
    transport::LaneTicket ticket;
    uint64_t address = 0;  // kOpened. 0: no answer yet.
    uint32_t rkey = 0;
    bool closing = false;
    uint32_t announced = 0;  // WRITEs, by a kArrived that has no answer. 0: there is none.
  };
  std::map<uint32_t, Handle> handles;
  std::set<uint32_t> used;  // Handles ever.
  uint32_t next_handle = 1;
  uint32_t unanswered = 0;
  uint32_t operations = 0;  // Posted, not completed.

  // ---- Where the liar is.
  std::deque<transport::LaneMessage> asked;  // Not answered.
  std::map<uint32_t, uint32_t> granted;      // Its rkeys, by handle.
};

// A peer of lanes that follows the protocol as far as a script says, and then lies: as the requester, to a
// LaneServer, and as the owner, to a Lane. Queue pairs of a simulated host, with nothing of transport/lane
// above them but the codec of its messages.
class LaneLiar final : fabric::ListenHandler {
 public:
  // `victim`: whom it dials. `tickets`: what the victim has given it, and what it has not.
  LaneLiar(sim::Network& network, int host, const SocketAddress& victim,
           std::vector<transport::LaneTicket> tickets);
  ~LaneLiar();

  SocketAddress address() const { return listener_->address(); }
  // One turn of its poller. Returns how much there was to do.
  size_t Turn();
  // Does step `what`, modulo their number, in the words of the script.
  void Step(uint8_t what, Script& script);
  // Ends every lane, and frees all.
  void Leave();

  // To the victim, as the owner: that has to keep every rule for a peer that has not.
  bool has_lied() const { return has_lied_; }
  // WRITEs that the victim may have counted for it, and those that it says it has.
  uint64_t announced() const { return announced_; }
  uint64_t counted() const { return counted_; }
  const uint8_t* sink() { return memory_.sink(); }
  void FillSink(uint8_t with);

 private:
  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override;
  LaneLine& NewLine(bool dialed);
  LaneLine* Any(Script& script, bool dialed);

  void Dial(Script& script);
  void Ask(Script& script);
  void Announce(LaneLine& line, uint32_t handle, Script& script);
  void Access(Script& script);
  void Answer(Script& script);
  void AnswerOne(LaneLine& line, Script& script);
  void Revoke(Script& script);
  void Post(LaneLine& line, std::string bytes);
  void PostMessage(LaneLine& line, const transport::LaneMessage& message);
  void PostReceive(LaneLine& line, size_t number);
  void Hear(LaneLine& line, const transport::LaneMessage& message);

  const std::shared_ptr<sim::SimFabric> fabric_;
  const SocketAddress victim_;
  const std::vector<transport::LaneTicket> tickets_;
  LaneLiarMemory memory_;
  std::unique_ptr<fabric::CompletionQueue> completion_queue_;
  std::unique_ptr<fabric::Listener> listener_;
  std::deque<LaneLine> lines_;
  std::vector<std::unique_ptr<fabric::ConnectRequest>> unanswered_;
  // Of the next message: this byte of it is changed by these bits, or, if they are 0, it ends there.
  bool spoils_ = false;
  uint8_t spoil_at_ = 0, spoil_bits_ = 0;
  uint8_t next_accept_ = 0, next_accept_at_ = 0, next_accept_bits_ = 0;
  bool has_lied_ = false;
  uint64_t announced_ = 0, counted_ = 0;
  bool has_left_ = false;
};

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_LANE_LIAR_H_
