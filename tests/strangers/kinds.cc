#include <algorithm>
#include <iterator>

#include "hawser/tests/strangers/stranger.h"
#include "hawser/transport/fabric/tcp/frame.h"

namespace hawser::strangers {
namespace {

constexpr int64_t kBriefly = 50 * kMs;
constexpr size_t kUnsentMax = 64 << 10;  // Bytes that a flood keeps ready for the socket.

// ---- Before the first message

class Mute final : public Stranger {
  void OnConnected() override {
    line().SendBytes("\x89HAWS");
    AtWork();
  }
};

class Greeting final : public Stranger {
  void OnAccepted() override {
    AtWork();
    Leave(kBriefly);
  }
};

// Dials at a constant rate, whatever the server answers.
class Lingering final : public Stranger {
  void OnAccepted() override { AtWork(); }
  void OnTick() override {
    if (BackInNs() == 0) Leave(0);
  }
  int64_t BackInNs() const override { return std::max<int64_t>(0, dialed_ns() + kLingerNs - now_ns()); }
};

// Disconnects in the next of these states each time that it connects.
class Disconnecting final : public Stranger {
  enum State { kConnected, kGreeting, kGreeted, kAccepted, kInFrame, kAsked, kInRead, kAnswered, kReading };
  static constexpr int kStates = kReading + 1;

  void GoAway() {
    AtWork();
    // Only every 16th with a FIN, because each FIN keeps a port busy for a minute.
    const bool abortive = ++times_ % 16 != 0;
    state_ = static_cast<State>(times_ % kStates);
    Leave(kBriefly, abortive);
  }

  void OnConnected() override {
    if (state_ == kConnected) return GoAway();
    if (state_ == kGreeting) {
      line().SendBytes("\x89HAWSER");
    } else {
      Greet();
    }
  }
  void OnSent() override {
    const bool ready = accepted() && (state_ == kInFrame || state_ == kAsked);
    if (ready || state_ == kGreeting || state_ == kGreeted) GoAway();
  }
  void OnAccepted() override {
    if (state_ == kAccepted) GoAway();
    if (state_ == kInFrame) {
      line().SendBytes(absl::string_view("\1\0\0\0\100\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\2\3", 27));
    }
    if (state_ == kAsked) SendGet(0, kGetBytes);
    if (state_ == kInRead) SendPut(0, 1 << 20);
    if (state_ == kAnswered || state_ == kReading) SendGet(0, kGetBytes);
  }
  void OnReadRequest() override {
    if (state_ != kInRead) return;
    line().ServeRead(1000);
    state_ = kAsked;  // It disconnects when the request is sent.
  }
  void OnResponse(uint16_t, absl::Span<const transport::TableEntry> table) override {
    if (state_ == kAnswered || table.empty()) return GoAway();
    for (const transport::TableEntry& entry : table) {
      if (entry.rkey != 0) line().SendReadRequest(entry, std::min<uint32_t>(entry.length_bytes, 256 << 10));
    }
  }
  void OnReadData(size_t) override { GoAway(); }

  State state_ = kConnected;
  int times_ = 0;
};

// ---- With large messages

class Stopped final : public Stranger {
  void OnAccepted() override { SendPut(0, kLargest); }
  void OnReadRequest() override {
    line().ServeRead(128 << 10);
    Stop();
  }
  // The server has not begun to READ.
  void OnTick() override {
    if (accepted()) Stop();
  }
  void Stop() {
    line().set_reads_socket(false);
    AtWork();
  }
};

class Trickling final : public Stranger {
  void OnAccepted() override {
    SendPut(0, kLargest);
    AtWork();
  }
  void OnReadRequest() override {
    if (line().reads().size() == 1) TickAt(now_ns() + kSecond);
  }
  void OnTick() override {
    line().ServeRead(1);
    TickAt(now_ns() + kSecond);
  }
};

// Answers READs just fast enough for the limit on READs that make no progress.
class Dawdling final : public Stranger {
  static constexpr int64_t kPauseNs = 10 * kSecond;

  void OnAccepted() override {
    SendPut(0, kLargest);
    AtWork();
  }
  void OnReadRequest() override {
    if (line().reads().size() == 1) TickAt(now_ns() + kPauseNs);
  }
  void OnTick() override {
    const size_t reads = line().reads().size();
    while (reads > 0 && line().reads().size() == reads) line().ServeRead(128 << 10);
    TickAt(now_ns() + kPauseNs);
  }
};

class Hoarding final : public Stranger {
  void OnAccepted() override {
    for (uint16_t slot = 0; slot < kSlots; ++slot) SendPut(slot, kLargest);
    FallSilent();
    AtWork();
  }
};

class Withholding final : public Stranger {
  void OnAccepted() override {
    for (uint16_t slot = 0; slot < 4; ++slot) SendPut(slot, 2 << 20);
    AtWork();
  }
};

class Rereading final : public Stranger {
  static constexpr uint32_t kAtOnce = 8;  // READs.

  void OnAccepted() override {
    entry_ = {};
    SendGet(0, kGetBytes);
  }
  void OnResponse(uint16_t, absl::Span<const transport::TableEntry> table) override {
    for (const transport::TableEntry& entry : table) {
      if (entry.rkey != 0) entry_ = entry;
    }
    read_bytes_ = 0;
    for (uint32_t i = 0; i < kAtOnce && entry_.rkey != 0; ++i) ReadAgain();
  }
  void OnReadData(size_t bytes) override {
    const uint64_t before = read_bytes_ / ReadBytes();
    read_bytes_ += bytes;
    for (uint64_t i = before; i < read_bytes_ / ReadBytes(); ++i) ReadAgain();
    AtWork();
  }
  uint32_t ReadBytes() const { return std::min<uint32_t>(entry_.length_bytes, 256 << 10); }
  void ReadAgain() { line().SendReadRequest(entry_, ReadBytes()); }

  transport::TableEntry entry_;
  uint64_t read_bytes_ = 0;
};

class Cancelling final : public Stranger {
  void OnAccepted() override {
    answered_ = 0;
    told_ = false;
    std::vector<transport::ControlOp> ops;
    for (uint16_t slot = 0; slot < kSlots; ++slot) {
      SendPut(slot, 64 << 10);
      ops.push_back(Stranger::Cancelling(slot));
    }
    SendControl(ops);
  }
  void OnReadRequest() override {
    while (!line().reads().empty()) line().ServeRead(128 << 10);
  }
  void OnResponse(uint16_t, absl::Span<const transport::TableEntry>) override {
    ++answered_;
    GoOn();
  }
  void OnControlAnswer() override {
    told_ = true;
    GoOn();
  }
  void GoOn() {
    if (answered_ < kSlots || !told_) return;
    AtWork();
    OnAccepted();
  }

  int answered_ = 0;
  bool told_ = false;
};

// ---- Costly frames

class Crumbs : public Stranger {
  void OnAccepted() override { SendPut(0, kLargest); }
  void OnReadRequest() override {
    AtWork();
    Fill();
  }
  void OnSent() override { Fill(); }
  // Shorter ones would end the connection.
  void Fill() {
    while (line().unsent_bytes() < kUnsentMax && line().ServeRead(fabric::kReadFragmentMin) > 0) {
    }
  }
};

class TinyRecords final : public Crumbs {
  size_t record_bytes() const override { return 1; }
};

class Acknowledging final : public Stranger {
  void OnAccepted() override { OnSent(); }
  void OnSent() override {
    if (!accepted()) return;
    while (line().unsent_bytes() < kUnsentMax) line().SendAcknowledgement();
    AtWork();
  }
};

// ---- With nothing that is wrong

class Busy final : public Stranger {
  void OnAccepted() override {
    for (uint16_t slot = 0; slot < kSlots; ++slot) SendGet(slot, kSmallBytes);
    AtWork();
  }
  void OnResponse(uint16_t slot, absl::Span<const transport::TableEntry>) override {
    SendGet(slot, kSmallBytes);
  }

  static constexpr uint32_t kSmallBytes = 8;
};

template <typename Kind>
std::unique_ptr<Stranger> Make() {
  return std::make_unique<Kind>();
}

constexpr StrangerKind kKinds[] = {
    {"stopped", "Its process stands still in the middle of a put of 500 MiB.", Make<Stopped>},
    {"trickling", "Serves a put of 500 MiB a byte a second.", Make<Trickling>},
    {"dawdling", "Serves one READ of a put of 500 MiB every ten seconds.", Make<Dawdling>},
    {"hoarding", "Announces 32 puts of 500 MiB and falls silent.", Make<Hoarding>},
    {"withholding", "Grants four puts of 2 MiB, answers all but their READs.", Make<Withholding>},
    {"rereading", "READs the megabyte that it was granted again and again.", Make<Rereading>},
    {"cancelling", "Cancels each of 32 puts at once, and asks again.", Make<Cancelling>},
    {"crumbs", "Serves READs in the shortest fragments, as fast as they go.", Make<Crumbs>},
    {"tiny_records", "Serves READs in TLS records of one byte, as fast as they go.", Make<TinyRecords>,
     /*over_tls=*/true},
    {"acknowledging", "Sends bare acknowledgements, as fast as they go.", Make<Acknowledging>},
    {"disconnecting", "Connects 20 times a second and leaves in each state in turn.", Make<Disconnecting>},
    {"greeting", "Is accepted 20 times a second and leaves.", Make<Greeting>},
    {"lingering", "Is accepted every three seconds, and says nothing.", Make<Lingering>},
    {"mute", "Sends half a greeting and waits.", Make<Mute>},
    {"busy", "Has 32 small calls in flight, as a client may.", Make<Busy>},
};

}  // namespace

absl::Span<const StrangerKind> StrangerKinds() { return kKinds; }

const StrangerKind* FindStrangerKind(absl::string_view name) {
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [name](const auto& kind) { return kind.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

}  // namespace hawser::strangers
