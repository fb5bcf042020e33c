// A connection fails while the library is in the middle of a step of another call, and the callback of the
// failure cancels that call. The servers are written by hand, on a bare socket. The test drives the only
// poller.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hawser/base/unique_fd.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/testing/raw_message.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/handshake.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using fabric::FrameHeader;
using fabric::FrameKind;

constexpr uint32_t kLarge = 256 << 10;

// Sends to its only client what a test wants, and acknowledges as many requests as the test sets.
class RawServer {
 public:
  RawServer(const char* host, uint16_t slots) : slots_(slots) {
    sockaddr_in address = {};
    socklen_t length_bytes = sizeof(address);
    address.sin_family = AF_INET;
    inet_pton(AF_INET, host, &address.sin_addr);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length_bytes), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length_bytes);
    uri = absl::StrCat("tcp://", host, ":", ntohs(address.sin_port));
  }

  // Reads what has arrived.
  void Step() {
    if (!socket_.is_open()) socket_ = UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK));
    if (!socket_.is_open()) return;
    char bytes[65536];
    for (ssize_t n; (n = recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT)) > 0;) in_.append(bytes, n);
    if (!greeted && !Greet()) return;
    while (in_.size() >= sizeof(FrameHeader)) {
      FrameHeader frame;
      std::memcpy(&frame, in_.data(), sizeof(frame));
      const bool is_read = frame.kind == FrameKind::kReadRequest;
      const size_t bytes_in = sizeof(frame) + (is_read ? 0 : frame.length_bytes);
      if (in_.size() < bytes_in) return;
      in_.erase(0, bytes_in);
      if (is_read) reads.push_back({received, frame.length_bytes});
      if (is_read || frame.kind == FrameKind::kSend) ++received;
      sends += frame.kind == FrameKind::kSend;
    }
  }

  // A frame that acknowledges `acknowledged` requests.
  std::string Frame(FrameKind kind, const std::string& payload, uint32_t key = 0, uint8_t status = 0,
                    uint64_t offset = 0) const {
    const FrameHeader header = {.kind = kind,
                                .status = status,
                                .length_bytes = static_cast<uint32_t>(payload.size()),
                                .acknowledged = acknowledged,
                                .key = key,
                                .address = offset};
    return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
  }
  // The next answer of the slot: without a body, or with so many bytes for the client to READ.
  std::string Answer(uint32_t number, uint32_t large_bytes = 0,
                     const internal::ResponseEnvelope& says = {}) const {
    transport::RawMessage message = transport::RawResponse(0, number, 8);
    const auto envelope = internal::Encode(says);
    message.header.envelope_words = 1;
    message.envelope.assign(envelope.begin(), envelope.end());
    if (large_bytes != 0) {
      message.table = {{0x10000, 77, large_bytes}};
      message.inline_bytes.clear();
    }
    return Frame(FrameKind::kSend, message.Encode());
  }
  void Write(const std::string& bytes) {
    size_t sent = 0;
    EXPECT_TRUE(Eventually([&] {
      const ssize_t n =
          send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) sent += static_cast<size_t>(n);
      return sent == bytes.size();
    }));
  }
  // The answer to the oldest READ, with its acknowledgement.
  std::string ReadAnswer() {
    acknowledged = received;
    std::string bytes;
    const Read read = reads.front();
    reads.erase(reads.begin());
    for (uint32_t at = 0; at < read.length_bytes; at += fabric::kReadFragmentMax) {
      const uint32_t length_bytes = std::min(read.length_bytes - at, fabric::kReadFragmentMax);
      bytes += Frame(FrameKind::kReadResponse, std::string(length_bytes, '\0'), read.number, 0, at);
    }
    return bytes;
  }

  struct Read {
    uint32_t number;
    uint32_t length_bytes;
  };
  std::string uri;
  bool greeted = false;
  int sends = 0;
  uint32_t received = 0;  // SENDs and READs received so far.
  uint32_t acknowledged = 0;
  uint32_t generation = 0;  // The generation of slot 0; the test counts it.
  std::vector<Read> reads;

 private:
  bool Greet() {
    constexpr size_t kGreetingBytes = 16;
    if (in_.size() < kGreetingBytes) return false;
    const size_t bytes = kGreetingBytes + static_cast<uint8_t>(in_[11]);
    if (in_.size() < bytes) return false;
    uint32_t read_depth;
    std::memcpy(&read_depth, &in_[12], sizeof(read_depth));
    in_.erase(0, bytes);
    transport::Handshake handshake;
    handshake.role = transport::Role::kForward;
    handshake.slots = slots_;
    handshake.receive_buffer_bytes = 4096;
    handshake.message_bytes_max = 1 << 20;
    handshake.session[0] = 1;
    greeted = true;
    Write(fabric::EncodeGreeting(fabric::GreetingKind::kAccept, read_depth, transport::Encode(handshake)));
    return true;
  }

  const uint16_t slots_;
  const UniqueFd listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  UniqueFd socket_;
  std::string in_;
};

// A clock that never advances, so that no READ is late on a slow machine. Then only the test decides which of
// two connections has its turn.
class StandingClock final : public transport::Environment {
 public:
  int64_t NowNs() override { return absl::ToInt64Nanoseconds(absl::Hours(1)); }
};

class HalfWayTest : public ::testing::Test {
 protected:
  ~HalfWayTest() override { DriveToTheEnd(runtime); }

  // Runs turns of the poller and of `servers` until `condition` holds.
  bool Drive(const std::vector<RawServer*>& servers, const std::function<bool()>& condition) {
    return Eventually([&] {
      runtime->poller(0).PollOnce();
      for (RawServer* server : servers) server->Step();
      return condition();
    });
  }
  std::shared_ptr<Channel> Connect(RawServer& server, uint16_t slots) {
    ChannelOptions options = {.backoff_min = kLong, .backoff_max = kLong, .connection = {.slots = slots}};
    options.runtime = runtime;
    auto channel = *Channel::Create(server.uri, std::move(options));
    EXPECT_TRUE(Drive({&server}, [&] { return channel->state() == ChannelState::kReady; }));
    return channel;
  }

  StandingClock clock_;
  const std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(*transport::CreateFabric("tcp"),
                                    {.poller = {.read_bytes_max = kLarge}, .pool = {.limit_bytes = 16 << 20}},
                                    /*start_threads=*/false, clock_);
};

// The fabric does not copy this request, so it takes a place in the send ring, and has a completion.
PendingCall<probe::Probe::EchoResults> SendNotCopied(const std::shared_ptr<Channel>& channel) {
  auto call = probe::ProbeStub(channel).Echo();
  call.request().initData(1000);
  return call.Send();
}

// The queue pair is already in error when the next request is posted.
TEST_F(HalfWayTest, ACallbackCancelsTheCallThatIsBeingSent) {
  RawServer server("127.0.0.1", 2);
  const auto channel = Connect(server, 2);
  auto first = SendAct(channel, 1);
  auto second = SendNotCopied(channel);
  auto third = probe::ProbeStub(channel).Echo();
  third.request().initData(65536);
  auto queued = third.Send();
  absl::Status of_second, of_queued;
  bool ended = false;
  second.Then([&](auto reply) {
    of_second = reply.status();
    queued.Cancel();
  });
  queued.Then([&](auto reply) {
    of_queued = reply.status();
    ended = true;
  });
  ASSERT_TRUE(Drive({&server}, [&] { return server.sends == 2; }));
  server.acknowledged = 1;
  server.Write(server.Answer(1) +
               server.Frame(FrameKind::kNak, "", 1,
                            static_cast<uint8_t>(fabric::CompletionStatus::kRnrRetryExceeded)));
  ASSERT_TRUE(Drive({&server}, [&] { return ended; }));
  EXPECT_THAT(of_second, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(of_queued, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(HalfWayTest, AnAnswerWithMetadataThatIsNotThereIsDataLoss) {
  RawServer server("127.0.0.1", 1);
  const auto channel = Connect(server, 1);
  for (const uint16_t segment : {0, 1, 2, 0xffff}) {
    for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kNotFound}) {
      absl::Status status = absl::UnknownError("");
      auto call = SendAct(channel, 1);
      call.Then([&](auto reply) { status = reply.status(); });
      const int sends = server.sends;
      ASSERT_TRUE(Drive({&server}, [&] { return server.sends > sends; }));
      server.acknowledged = server.received;
      server.Write(server.Answer(++server.generation, 0, {code, false, segment}));
      ASSERT_TRUE(Drive({&server}, [&] { return !absl::IsUnknown(status); }));
      EXPECT_THAT(status, HasCode(segment == 0 ? code : absl::StatusCode::kDataLoss));
    }
  }
}

// Two servers. One acknowledges nothing, so that the send ring of its connection becomes full, and the next
// READ fails the connection. The callback of that failure cancels a call to the other server.
class TwoServersTest : public HalfWayTest {
 protected:
  // The unacknowledged requests that a connection with one slot may have. With one more its ring is full.
  static constexpr int kUnacknowledged = 63;

  TwoServersTest() {
    honest_channel_ = Connect(honest, 1);
    silent_channel_ = Connect(silent, 1);
  }
  ~TwoServersTest() override {
    cancelled_.reset();
    last_.reset();
    honest_channel_.reset();
    silent_channel_.reset();
  }
  bool Drive(const std::function<bool()>& condition) {
    return HalfWayTest::Drive({&honest, &silent}, condition);
  }

  void AnswerLarge(RawServer& server, const std::shared_ptr<Channel>& channel) {
    bool done = false;
    auto call = SendAct(channel, 1);
    call.Then([&](auto) { done = true; });
    const int sends = server.sends;
    ASSERT_TRUE(Drive([&] { return server.sends > sends; }));
    server.acknowledged = server.received;
    server.Write(server.Answer(++server.generation, 8192));
    ASSERT_TRUE(Drive([&] { return !server.reads.empty(); }));
    server.Write(server.ReadAnswer());
    ASSERT_TRUE(Drive([&] { return done; }));
  }
  // Leaves one call to each server in flight. When the call to the silent one ends, it cancels the other
  // call.
  void FillTheRing() {
    for (int i = 0; i < kUnacknowledged; ++i) {
      bool done = false;
      auto call = SendNotCopied(silent_channel_);
      call.Then([&](auto) { done = true; });
      runtime->poller(0).PollOnce();
      silent.Write(silent.Answer(++silent.generation));
      ASSERT_TRUE(Drive([&] { return done; })) << i;
    }
    const int sends = honest.sends;
    cancelled_.emplace(SendAct(honest_channel_, 1));
    ASSERT_TRUE(Drive([&] { return honest.sends > sends; }));
    cancelled_->Then([this](auto reply) { of_cancelled = reply.status(); });
    last_.emplace(SendNotCopied(silent_channel_));
    last_->Then([this](auto reply) {
      of_last = reply.status();
      cancelled_->Cancel();
    });
    runtime->poller(0).PollOnce();
  }

  RawServer honest{"127.0.0.2", 1}, silent{"127.0.0.1", 1};
  std::optional<absl::Status> of_cancelled, of_last;
  std::shared_ptr<Channel> honest_channel_, silent_channel_;

 private:
  std::optional<PendingCall<probe::Probe::ActResults>> cancelled_;
  std::optional<PendingCall<probe::Probe::EchoResults>> last_;
};

TEST_F(TwoServersTest, ACallbackCancelsTheCallWhoseAnswerIsBeingAnnounced) {
  FillTheRing();
  std::vector<transport::Lease> hoard;
  transport::Shortage why;
  for (const size_t bytes : {kLarge, kLarge / 2, kLarge / 4, kLarge / 8}) {
    while (transport::Lease lease = runtime->buffers().TryAcquire(bytes, why))
      hoard.push_back(std::move(lease));
  }
  silent.Write(silent.Answer(++silent.generation, kLarge));
  for (int i = 0; i < 20; ++i) runtime->poller(0).PollOnce();
  honest.acknowledged = honest.received;
  honest.Write(honest.Answer(++honest.generation, kLarge));
  hoard.clear();
  ASSERT_TRUE(Drive([&] { return of_last.has_value() && of_cancelled.has_value(); }));
  EXPECT_THAT(*of_last, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(*of_cancelled, HasCode(absl::StatusCode::kCancelled));
}

TEST_F(TwoServersTest, ACallbackCancelsTheCallWhoseLastReadHasJustEnded) {
  // Both answer READs first, so that each has its share of the read budget.
  AnswerLarge(honest, honest_channel_);
  AnswerLarge(silent, silent_channel_);
  FillTheRing();
  honest.acknowledged = honest.received;
  honest.Write(honest.Answer(++honest.generation, kLarge));
  ASSERT_TRUE(Drive([&] { return !honest.reads.empty(); }));
  silent.Write(silent.Answer(++silent.generation, kLarge));
  for (int i = 0; i < 20; ++i) runtime->poller(0).PollOnce();
  honest.Write(honest.ReadAnswer());
  ASSERT_TRUE(Drive([&] { return of_last.has_value() && of_cancelled.has_value(); }));
  EXPECT_THAT(*of_last, HasCode(absl::StatusCode::kUnavailable));
  // The whole response had arrived.
  EXPECT_THAT(*of_cancelled, IsOk());
}

}  // namespace
}  // namespace hawser
