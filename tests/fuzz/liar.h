#ifndef HAWSER_TESTS_FUZZ_LIAR_H_
#define HAWSER_TESTS_FUZZ_LIAR_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/fuzz/liar_line.h"
#include "hawser/tests/sim/network.h"
#include "hawser/tests/sim/sim_fabric.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::fuzz {

// A peer that follows the protocol as far as a script says, and then lies: queue pairs of a simulated host
// with nothing of transport/ above them. It implements the protocol by itself, from rpc/PROTOCOL.md. It
// records each lie: on a connection without one, the victim must keep every rule (liar_line.h).
class Liar final : fabric::ListenHandler {
 public:
  // `victim`: whom it dials. Takes part in `lines_max` connections, LiarMemory::kLinesMax at most. `words`
  // outlives it; null: it says nothing above transport/, but bytes.
  Liar(sim::Network& network, int host, const SocketAddress& victim, size_t lines_max, LiarWords* words);
  ~Liar();

  SocketAddress address() const { return listener_->address(); }

  // One turn of its poller. Returns how much there was to do.
  size_t Turn();
  // Does step `what`, modulo their number, in the words of the script.
  void Step(uint8_t what, Script& script);
  // Ends every connection, and frees all.
  void Leave();

  // Whether a lie was told on the line whose address of this side is `local`, or, of one that the victim
  // dialed, whose handshake bore these `features`. A line that is not known has lied.
  bool HasLied(const SocketAddress& local) const;
  bool HasLied(uint32_t features) const;
  // On any line.
  bool HasLied() const;
  // More than one control request was under way at once, so one answer may have overwritten another.
  bool flooded_control() const { return flooded_control_; }

 private:
  static transport::Handshake Hello(transport::Role role);
  // That of the last connection that it has dialed to ask by; zeros if there is none.
  transport::SessionToken Session() const;

  struct Spoil {
    enum class What : uint8_t { kNothing, kBits, kCut, kLonger, kTwice, kHeld } what = What::kNothing;
    size_t at = 0;
    uint8_t bits = 0;
  };

  void Dial(Script& script);
  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override;
  void SendRequest(LiarLine& line, Script& script);
  void SendResponse(LiarLine& line, Script& script);
  void SendControl(LiarLine& line, Script& script);
  void SendControlAck(LiarLine& line, Script& script);
  void ReadWhatWasGranted(LiarLine& line, Script& script);
  void Arm(Script& script);
  // The body of a message, inline and granted; `spoiled`: one descriptor of it is not true.
  std::string Compose(LiarLine& line, transport::Header header, Script& script, bool request);
  void Send(LiarLine& line, std::string bytes);
  LiarLine* Any(Script& script);
  LiarLine& NewLine(bool asks);

  const std::shared_ptr<sim::SimFabric> fabric_;
  const SocketAddress victim_;
  const size_t lines_max_;
  LiarWords* const words_;
  const LiarMemory memory_;
  std::unique_ptr<fabric::CompletionQueue> completion_queue_;
  std::unique_ptr<fabric::Listener> listener_;
  std::deque<LiarLine> lines_;
  Spoil spoil_;
  uint8_t next_answer_ = 0;  // To whoever dials.
  uint8_t next_answer_at_ = 0;
  uint8_t next_answer_bits_ = 0;
  bool spoil_descriptor_ = false;
  bool flooded_control_ = false;
  std::vector<std::unique_ptr<fabric::ConnectRequest>> unanswered_;
};

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_LIAR_H_
