#ifndef HAWSER_TESTS_STRANGERS_STRANGER_H_
#define HAWSER_TESTS_STRANGERS_STRANGER_H_

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/tests/strangers/line.h"
#include "hawser/transport/wire.h"

namespace hawser::strangers {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000 * kMs;

// How long a stranger of the kind "lingering" stays.
inline constexpr int64_t kLingerNs = 3 * kSecond;

// What strangers get of the server.
inline constexpr uint32_t kGetBytes = 1 << 20;

// The server, and what of it is called.
struct Target {
  sockaddr_in address = {};
  uint64_t interface_id = 0;
  uint16_t put = 0;  // A method that takes a large request.
  uint16_t get = 0;  // (bytes :UInt32) -> a response of that size.
};

// What a stranger has done so far.
struct StrangerCounts {
  uint64_t dials = 0;
  uint64_t accepted = 0;
  uint64_t rejected = 0;  // By a reject, or closed before an accept.
  bool at_work = false;   // It does, or has done, what its kind is for.
};

// A client that is bad in one way. It dials, greets as an honest client does, is bad, and, when the server
// closes its connection, dials again: there is always one.
// Thread: one, the crowd's.
class Stranger : private Line::Observer {
 public:
  virtual ~Stranger() = default;
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // The first time, at `first_dial_ns`, and whenever something is due after that.
  void Start(const Target& target, const in_addr& from, int64_t first_dial_ns);
  void OnTime(int64_t now_ns);
  int64_t next_ns() const { return next_ns_; }
  Line& line() { return line_; }
  const StrangerCounts& counts() const { return counts_; }

 protected:
  static constexpr uint16_t kSlots = 32;
  static constexpr uint32_t kLargest = 500 << 20;  // Of a body that the server takes.

  Stranger() = default;

  // ---- What a kind does. At first: greets, then nothing.

  virtual void OnConnected() override { Greet(); }
  virtual void OnAccepted() {}
  // Every 100 ms at the latest, while the connection is open.
  virtual void OnTick() {}
  virtual void OnReadRequest() override {}
  virtual void OnReadData(size_t) override {}
  virtual void OnResponse(uint16_t /*slot*/, absl::Span<const transport::TableEntry>) {}
  virtual void OnControlAnswer() {}
  virtual void OnSent() override {}
  // When to dial again after the server has ended a connection, or refused one.
  virtual int64_t BackInNs() const { return 100 * kMs; }

  // ---- What it does it with

  const Target& target() const { return target_; }
  int64_t now_ns() const { return now_ns_; }
  // When it last did.
  int64_t dialed_ns() const { return dialed_ns_; }
  // This connection was.
  bool accepted() const { return greeted_; }
  void Greet();
  // In the next exchange of the slot; one that is busy must not be asked for.
  void SendPut(uint16_t slot, uint32_t granted_bytes);
  void SendGet(uint16_t slot, uint32_t bytes);
  transport::ControlOp Cancelling(uint16_t slot) const;
  void SendControl(const std::vector<transport::ControlOp>& ops);
  void AtWork() { counts_.at_work = true; }
  // Calls OnTick() then.
  void TickAt(int64_t when_ns) { next_ns_ = when_ns; }
  // Closes, and dials again in so long.
  void Leave(int64_t back_in_ns, bool abortive = true);
  // Does not answer pings any more.
  void FallSilent() { silent_ = true; }

 private:
  void OnGreeting(bool accepted) override;
  void OnMessage(const transport::Header& header, absl::Span<const transport::TableEntry> table) override;
  void OnEnd() override;
  void SendRequest(uint16_t slot, uint16_t method, absl::Span<const transport::TableEntry> table,
                   absl::string_view body);

  Target target_;
  in_addr from_ = {};
  Line line_{*this};
  int64_t now_ns_ = 0;
  int64_t dialed_ns_ = 0;
  int64_t next_ns_ = 0;
  bool greeted_ = false;
  bool silent_ = false;
  uint32_t control_generation_ = 0;
  std::array<uint32_t, kSlots> generations_ = {};
  StrangerCounts counts_;
};

// One way to be bad.
struct StrangerKind {
  const char* name;
  const char* sentence;  // What it does.
  std::unique_ptr<Stranger> (*make)();
};
absl::Span<const StrangerKind> StrangerKinds();
// nullptr: there is none.
const StrangerKind* FindStrangerKind(absl::string_view name);

}  // namespace hawser::strangers

#endif  // HAWSER_TESTS_STRANGERS_STRANGER_H_
