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
#include "hawser/transport/wire/wire.h"

namespace hawser::strangers {

inline constexpr int64_t kMs = 1'000'000;
inline constexpr int64_t kSecond = 1'000 * kMs;

// How long a stranger of the kind "lingering" stays.
inline constexpr int64_t kLingerNs = 3 * kSecond;

// The size of the responses that strangers request.
inline constexpr uint32_t kGetBytes = 1 << 20;

// The server, and the methods that strangers call.
struct Target {
  sockaddr_in address = {};
  uint64_t interface_id = 0;
  uint16_t put = 0;                        // A method that takes a large request.
  uint16_t get = 0;                        // (bytes :UInt32) -> a response of that size.
  std::shared_ptr<SSL_CTX> tls = nullptr;  // What they show a server with credentials; see NewTlsClient().
};

// What one stranger has done so far.
struct StrangerCounts {
  uint64_t dials = 0;
  uint64_t accepted = 0;
  uint64_t rejected = 0;  // By a reject, or closed before an accept.
  bool at_work = false;   // It misbehaves, or has misbehaved, as its kind does.
};

// A client that misbehaves in one way. It dials, greets as an honest client does, and misbehaves. When the
// server closes the connection, it dials again.
// Thread: that of the crowd.
class Stranger : private Line::Observer {
 public:
  virtual ~Stranger() = default;
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  // The crowd calls OnTime() at `first_dial_ns`, and then at each next_ns().
  void Start(const Target& target, const in_addr& from, int64_t first_dial_ns);
  void OnTime(int64_t now_ns);
  int64_t next_ns() const { return next_ns_; }
  Line& line() { return line_; }
  const StrangerCounts& counts() const { return counts_; }

 protected:
  static constexpr uint16_t kSlots = 32;
  static constexpr uint32_t kLargest = 500 << 20;  // The server takes a body of this size.

  Stranger() = default;

  // ---- A kind overrides these. The defaults greet and then do nothing.

  virtual void OnConnected() override { Greet(); }
  virtual void OnAccepted() {}
  // Called at least every 100 ms while the connection is open.
  virtual void OnTick() {}
  virtual void OnReadRequest() override {}
  virtual void OnReadData(size_t) override {}
  virtual void OnResponse(uint16_t /*slot*/, absl::Span<const transport::TableEntry>) {}
  virtual void OnControlAnswer() {}
  virtual void OnSent() override {}
  // What a record of TLS has at most.
  virtual size_t record_bytes() const { return 16 << 10; }
  // When to dial again after the server has ended a connection, or refused one.
  virtual int64_t BackInNs() const { return 100 * kMs; }

  // ---- For kinds

  const Target& target() const { return target_; }
  int64_t now_ns() const { return now_ns_; }
  // The time of its last dial.
  int64_t dialed_ns() const { return dialed_ns_; }
  // Whether the server has accepted this connection.
  bool accepted() const { return greeted_; }
  void Greet();
  // Each uses the next exchange of the slot, which must not be busy.
  void SendPut(uint16_t slot, uint32_t granted_bytes);
  void SendGet(uint16_t slot, uint32_t bytes);
  void SendRequest(uint16_t slot, uint16_t method, absl::Span<const transport::TableEntry> table,
                   absl::string_view body);
  transport::ControlOp Cancelling(uint16_t slot) const;
  void SendControl(const std::vector<transport::ControlOp>& ops);
  void AtWork() { counts_.at_work = true; }
  // Calls OnTick() at that time.
  void TickAt(int64_t when_ns) { next_ns_ = when_ns; }
  // Closes the connection, and dials again after that time.
  void Leave(int64_t back_in_ns, bool abortive = true);
  // Stops answering pings.
  void FallSilent() { silent_ = true; }

 private:
  void OnGreeting(bool accepted) override;
  void OnMessage(const transport::Header& header, absl::Span<const transport::TableEntry> table) override;
  void OnEnd() override;
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

// One way to misbehave.
struct StrangerKind {
  const char* name;
  const char* sentence;  // What it does.
  std::unique_ptr<Stranger> (*make)();
  bool over_tls =
      false;  // Its target has credentials. The others come with TLS or without, as the target does.
};
absl::Span<const StrangerKind> StrangerKinds();
// nullptr: there is none.
const StrangerKind* FindStrangerKind(absl::string_view name);

}  // namespace hawser::strangers

#endif  // HAWSER_TESTS_STRANGERS_STRANGER_H_
