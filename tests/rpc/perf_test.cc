// What a server lets clients measure, and what that can cost it. The tool that measures:
// tests/tools/hawser_perf_test.sh.

#include "hawser/services/perf/perf.h"

#include <arpa/inet.h>
#include <capnp/message.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hawser/base/unique_fd.h"
#include "hawser/measure/raw_socket.h"
#include "hawser/measure/verbs/raw_client.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/services/perf/perf_memory.h"
#include "hawser/services/perf/perf_service.h"
#include "hawser/services/perf/raw_socket_port.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using internal::PerfMemory;
using internal::PerfService;
using measure::RawSocket;
using ::testing::HasSubstr;
using ::testing::Not;
using transport::RawClient;
using transport::RawPlan;
using Service = perf::RawService;

std::string Filled(size_t bytes) { return std::string(bytes, 'p'); }

capnp::Data::Reader AsData(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

absl::StatusOr<std::string> Echo(const std::shared_ptr<Channel>& channel, const std::string& payload) {
  auto call = perf::PerfStub(channel).Echo();
  call.request().setPayload(AsData(payload));
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  const auto answer = (*reply)->getPayload().asChars();
  return std::string(answer.begin(), answer.size());
}

absl::StatusOr<uint64_t> Put(const std::shared_ptr<Channel>& channel, const std::string& payload) {
  auto call = perf::PerfStub(channel).Put();
  call.request().setPayload(AsData(payload));
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getBytes();
}

absl::StatusOr<std::string> Get(const std::shared_ptr<Channel>& channel, uint64_t bytes) {
  auto call = perf::PerfStub(channel).Get();
  call.request().setBytes(bytes);
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  const auto answer = (*reply)->getPayload().asChars();
  return std::string(answer.begin(), answer.size());
}

struct Port {
  SocketAddress address;
  std::string token;

  RawSocket Connect() const {
    auto socket = RawSocket::Connect(address, kLong);
    EXPECT_THAT(socket.status(), IsOk());
    return socket.ok() ? *std::move(socket) : RawSocket(UniqueFd());
  }
  absl::StatusOr<std::unique_ptr<RawClient>> ConnectQueuePair(const RawPlan& plan = {}) const {
    RawClient::Options options = {.patience = kLong};
    std::copy_n(token.begin(), std::min(token.size(), options.token.size()), options.token.begin());
    return RawClient::Connect(*transport::Runtime::Default(TestScheme()), address, plan, options);
  }
  RawSocket ConnectWithToken() const {
    RawSocket socket = Connect();
    EXPECT_TRUE(socket.Send(token.data(), token.size(), false));
    return socket;
  }
};

absl::StatusOr<Port> OpenRaw(const std::shared_ptr<Channel>& channel, Service service) {
  auto call = perf::PerfStub(channel).OpenRaw();
  call.request().setService(service);
  call.request().setAddress(TestHost());
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  const auto token = (*reply)->getToken().asChars();
  return Port{TestAddress((*reply)->getPort()), std::string(token.begin(), token.size())};
}

bool IsClosed(RawSocket& socket) {
  uint8_t byte;
  return !socket.Receive(&byte, 1, false);
}

// A server whose service of perf.capnp has other times than that of PerfExtension().
class TimedServer final : internal::ServerExtensionHost {
 public:
  explicit TimedServer(const PerfService::Settings& settings, const ServerOptions& options = {})
      : service_(*this, transport::Environment::Real(), options, settings) {
    EXPECT_THAT(server.AddService(&service_), IsOk());
    channel = *Channel::Connect(*server.Listen(TestUri()));
  }
  // As Server::Shutdown() does with its own.
  void Close() { service_.Close(absl::InfinitePast()); }

 private:
  absl::StatusOr<Buffer> AllocateOn(absl::string_view, size_t size_bytes) override {
    ++allocations;
    sizes.Put(size_bytes);
    if (on_allocate) on_allocate();
    return server.AllocateBuffer(size_bytes);
  }
  uint64_t RefusalsOn(absl::string_view) const override { return refusals; }
  absl::StatusOr<SharedMemory> Share(size_t size_bytes) override {
    ++shares;
    if (on_share) on_share();
    if (refuses_memory) return absl::ResourceExhaustedError("no memory");
    return server.Share(size_bytes);
  }
  absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeAt(absl::string_view scheme,
                                                                const SocketAddress&) override {
    return transport::Runtime::Default(scheme);
  }
  std::vector<SocketAddress> listening() const override { return {TestAddress()}; }
  const MethodTable& methods() const override { return no_methods_; }
  void FillIn(observe::wire::Snapshot::Builder snapshot) override { server.FillIn(snapshot); }

  const MethodTable no_methods_;

  PerfService service_;

 public:
  std::atomic<int> allocations{0};
  Box<size_t> sizes;  // Of each of them.
  std::atomic<uint64_t> refusals{0};
  std::function<void()> on_allocate, on_share;
  std::atomic<int> shares{0};
  std::atomic<bool> refuses_memory{false};
  Server server;
  std::shared_ptr<Channel> channel;
};

TEST(PerfTest, AServerAllowsItOnlyIfItSaysSo) {
  TestServer server;
  EXPECT_THAT(Put(server.Connect(), "p").status(), HasCode(absl::StatusCode::kUnimplemented));
}

TEST(PerfTest, PayloadsCrossInEachDirection) {
  TestServer server({.extensions = {PerfExtension()}});
  const auto channel = server.Connect();
  for (const size_t bytes : {1, 4096, 4097, 70'000, 3 << 20}) {
    EXPECT_EQ(Echo(channel, Filled(bytes)).value(), Filled(bytes));
    EXPECT_EQ(Put(channel, Filled(bytes)).value(), bytes);
    EXPECT_EQ(Get(channel, bytes).value(), std::string(bytes, 'g'));
    EXPECT_EQ(Get(channel, bytes - 1).value(), std::string(bytes - 1, 'g'));
  }
}

TEST(PerfTest, WhatItTakesIsKnownBefore) {
  TestServer server({.connection = {.slots = 7, .receive_buffer_bytes = 1024, .message_bytes_max = 1 << 20},
                     .extensions = {PerfExtension()}});
  const auto limits = perf::PerfStub(server.Connect()).Limits().Send().Wait();
  ASSERT_THAT(limits, IsOk());
  EXPECT_EQ((*limits)->getSlots(), 7);
  EXPECT_EQ((*limits)->getReceiveBufferBytes(), 1024);
  EXPECT_EQ((*limits)->getMessageBytesMax(), 1 << 20);
}

TEST(PerfTest, AGetBeyondTheLimitIsRefused) {
  TestServer server({.connection = {.message_bytes_max = 1 << 20}, .extensions = {PerfExtension()}});
  const auto channel = server.Connect();
  EXPECT_THAT(Get(channel, (1 << 20) - 1024), IsOk());
  for (const uint64_t bytes : {uint64_t{1} << 20, uint64_t{1} << 29, ~uint64_t{0}}) {
    const absl::Status status = Get(channel, bytes).status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(std::string(status.message()), HasSubstr("message_bytes_max"));
  }
  EXPECT_THAT(Get(channel, 1), IsOk());
}

TEST(PerfTest, APayloadOfEachPowerOfTwoIsHeldOnceAndFreedWhenUnused) {
  TimedServer server({.keep = kExpires});
  constexpr uint64_t kBytes = 8 << 20;
  ASSERT_THAT(Put(server.channel, "p"), IsOk());
  const uint64_t before = server.server.stats().leased_bytes;
  for (uint64_t bytes = kBytes; bytes > 0; bytes /= 2) ASSERT_THAT(Get(server.channel, bytes), IsOk());
  EXPECT_LT(server.server.stats().leased_bytes, before + 2 * kBytes + (1 << 20));
  EXPECT_TRUE(Eventually([&] { return server.server.stats().leased_bytes < before + kBytes; }));
  EXPECT_THAT(Get(server.channel, kBytes), IsOk());
}

// Each has a payload of its own, so that small ones that go on do not keep a large one.
TEST(PerfTest, ASmallGetDoesNotKeepALargePayload) {
  TimedServer server({.keep = kExpires});
  constexpr uint64_t kBytes = 8 << 20;
  ASSERT_THAT(Put(server.channel, "p"), IsOk());
  const uint64_t before = server.server.stats().leased_bytes;
  ASSERT_THAT(Get(server.channel, kBytes), IsOk());
  ASSERT_THAT(Get(server.channel, kBytes / 4), IsOk());
  EXPECT_EQ(server.allocations, 2);
  EXPECT_TRUE(Eventually([&] {
    EXPECT_THAT(Get(server.channel, kBytes / 4), IsOk());
    return server.server.stats().leased_bytes < before + kBytes / 2;
  }));
}

TEST(PerfTest, APayloadGoesWhenMemoryIsShort) {
  TimedServer server({.keep = absl::Hours(1), .look = kExpires});
  constexpr uint64_t kBytes = 8 << 20;
  ASSERT_THAT(Put(server.channel, "p"), IsOk());
  const uint64_t before = server.server.stats().leased_bytes;
  ASSERT_THAT(Get(server.channel, kBytes), IsOk());
  ++server.refusals;
  EXPECT_TRUE(Eventually([&] { return server.server.stats().leased_bytes < before + kBytes / 2; }));
}

TEST(PerfTest, SizesThatRiseSlowlyShareAPayload) {
  TimedServer server({.keep = absl::Seconds(60)});
  constexpr uint64_t kBytes = 4 << 20;
  ASSERT_THAT(Get(server.channel, kBytes / 2 + 8), IsOk());
  ASSERT_TRUE(Eventually([&] { return server.allocations == 1; }));
  for (int i = 2; i < 100; ++i) ASSERT_THAT(Get(server.channel, kBytes / 2 + 8 * i), IsOk());
  ASSERT_THAT(Get(server.channel, kBytes), IsOk());
  EXPECT_EQ(server.allocations, 1);
}

// Of the shared one it would be a copy, which takes too long on the poller.
TEST(PerfTest, ALargeSizeThatEndsWithinAWordHasAPayloadOfItsOwn) {
  TimedServer server({.keep = absl::Seconds(60)});
  constexpr uint64_t kBytes = 4 << 20;
  ASSERT_THAT(Get(server.channel, kBytes), IsOk());
  EXPECT_EQ(Get(server.channel, 4095).value(), std::string(4095, 'g'));
  EXPECT_EQ(server.allocations, 1);
  EXPECT_EQ(Get(server.channel, kBytes - 1).value(), std::string(kBytes - 1, 'g'));
  EXPECT_EQ(server.allocations, 2);
  ASSERT_THAT(Get(server.channel, kBytes), IsOk());
  EXPECT_EQ(server.allocations, 2);
}

absl::StatusOr<RemoteMemory> Share(const std::shared_ptr<Channel>& channel, uint8_t access) {
  auto call = perf::PerfStub(channel).Share();
  call.request().setAccess(access);
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return RemoteMemory(channel, (*reply)->getMemory());
}

TEST(PerfTest, ClientsReachMemoryForEachKindOfOperation) {
  TimedServer server({});
  auto reads = Share(server.channel, 1), writes = Share(server.channel, 3);
  ASSERT_THAT(reads, IsOk());
  ASSERT_THAT(writes, IsOk());
  EXPECT_EQ(reads->size_bytes(), PerfMemory::kRemoteBytes);
  EXPECT_EQ(writes->size_bytes(), PerfMemory::kRemoteBytes);
  std::vector<uint8_t> bytes(1000, 'w');
  EXPECT_THAT(writes->Write(PerfMemory::kRemoteBytes - 1000, absl::MakeSpan(bytes)).Wait(), IsOk());
  EXPECT_THAT(reads->Write(0, absl::MakeSpan(bytes)).Wait(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(reads->Read(PerfMemory::kRemoteBytes - 1000, absl::MakeSpan(bytes)).Wait(), IsOk());
  EXPECT_EQ(bytes, std::vector<uint8_t>(1000, 'g'));
  // One memory for all clients.
  auto again = Share(server.channel, 3);
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->Read(PerfMemory::kRemoteBytes - 1000, absl::MakeSpan(bytes)).Wait(), IsOk());
  EXPECT_EQ(bytes, std::vector<uint8_t>(1000, 'w'));
  if (reads->capabilities().atomics == RemoteAtomics::kNone) return;
  auto atomics = Share(server.channel, 4);
  ASSERT_THAT(atomics, IsOk());
  uint64_t before = 7;
  EXPECT_THAT(atomics->FetchAdd(PerfMemory::kAtomicBytes - 8, 1, before).Wait(), IsOk());
  EXPECT_EQ(before, 0);
}

TEST(PerfTest, MemoryForAnotherAccessIsRefused) {
  TimedServer server({});
  for (const uint8_t access : {0, 2, 5, 7, 8, 255}) {
    EXPECT_THAT(Share(server.channel, access).status(), HasCode(absl::StatusCode::kInvalidArgument));
  }
  server.Close();
  EXPECT_THAT(Share(server.channel, 1).status(), HasCode(absl::StatusCode::kUnavailable));
}

TEST(PerfTest, ServingGoesOnWhileMemoryIsMade) {
  TimedServer server({});
  Box<bool> began, go_on;
  server.on_share = [&] {
    began.Put(true);
    go_on.Take();
  };
  const auto send = [&] {
    auto call = perf::PerfStub(server.channel).Share();
    call.request().setAccess(3);
    return call.Send();
  };
  auto first = send();
  began.Take();
  auto second = send();
  EXPECT_THAT(Put(server.channel, "p"), IsOk());
  EXPECT_THAT(Get(server.channel, 5), IsOk());
  go_on.Put(true);
  const auto one = first.Wait(), other = second.Wait();
  ASSERT_THAT(one.status(), IsOk());
  ASSERT_THAT(other.status(), IsOk());
  EXPECT_EQ((*one)->getMemory().getRegion(), (*other)->getMemory().getRegion());
  EXPECT_EQ(server.shares, 1);
}

TEST(PerfTest, MemoryThatCannotBeMadeIsNotTriedForAtOnce) {
  TimedServer server({.refusal = absl::Hours(1)});
  server.refuses_memory = true;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Share(server.channel, 1).status(), HasCode(absl::StatusCode::kResourceExhausted));
  }
  EXPECT_EQ(server.shares, 1);
  server.refuses_memory = false;
  EXPECT_THAT(Share(server.channel, 3), IsOk()) << "that of another access";
}

TEST(PerfTest, MemoryThatCouldNotBeMadeIsTriedForLater) {
  TimedServer server({.refusal = kExpires});
  server.refuses_memory = true;
  EXPECT_THAT(Share(server.channel, 1).status(), HasCode(absl::StatusCode::kResourceExhausted));
  server.refuses_memory = false;
  EXPECT_TRUE(Eventually([&] { return Share(server.channel, 1).ok(); }));
}

TEST(PerfTest, AShareWhoseMemoryIsBeingMadeEndsWithTheServer) {
  TimedServer server({});
  Box<bool> began, go_on;
  server.on_share = [&] {
    began.Put(true);
    go_on.Take();
  };
  auto call = perf::PerfStub(server.channel).Share();
  call.request().setAccess(1);
  auto sent = call.Send();
  began.Take();
  std::thread closing([&] { server.Close(); });
  EXPECT_THAT(sent.Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  go_on.Put(true);
  closing.join();
}

TEST(PerfTest, NoPayloadIsMadeForCallsThatWereCancelled) {
  TimedServer server({.keep = absl::Seconds(60)});
  Box<bool> began, go_on;
  server.on_allocate = [&] {
    began.Put(true);
    go_on.Take();
  };
  auto call = perf::PerfStub(server.channel).Get();
  call.request().setBytes(1 << 20);
  auto first = call.Send();
  began.Take();
  for (int i = 1; i <= 8; ++i) {  // They wait for the first.
    auto larger = perf::PerfStub(server.channel).Get();
    larger.request().setBytes(uint64_t{1} << (20 + i % 4));
    auto sent = larger.Send();
    sent.Cancel();
    EXPECT_THAT(sent.Wait(), Not(IsOk()));
  }
  ASSERT_THAT(Put(server.channel, "p"), IsOk()) << "it comes after them";
  ASSERT_TRUE(Eventually([&] {
    capnp::MallocMessageBuilder message;
    server.server.FillIn(message.initRoot<observe::wire::Snapshot>());
    return message.getRoot<observe::wire::Snapshot>().asReader().getCalls().size() == 1;
  })) << "the server knows that they are cancelled";
  for (int i = 0; i < 20; ++i) go_on.Put(true);
  EXPECT_THAT(first.Wait(), IsOk());
  EXPECT_THAT(Get(server.channel, 1), IsOk());
  EXPECT_EQ(server.allocations, 1);
}

// A payload takes long to make. Each of these calls has one of its own.
TEST(PerfTest, AHostWithManyGetsKeepsNoOtherWaiting) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "only loopback has a second address everywhere";
  constexpr uint64_t kOfMany = (1 << 20) - 1, kOfOther = (2 << 20) - 1;
  TimedServer server({.keep = kLong});
  Box<bool> go_on;
  server.on_allocate = [&] { go_on.Take(); };
  const auto other =
      Channel::Connect(server.channel->peer_address(), {.connection = {.local_address = "127.0.0.2"}});
  ASSERT_THAT(other, IsOk());
  const auto send = [](const std::shared_ptr<Channel>& channel, uint64_t bytes) {
    auto call = perf::PerfStub(channel).Get();
    call.request().setBytes(bytes);
    return call.Send();
  };
  auto first = send(server.channel, kOfMany);
  EXPECT_EQ(server.sizes.Take(), kOfMany);  // From here on the thread is busy.
  std::vector<decltype(first)> many;
  for (int i = 0; i < 8; ++i) many.push_back(send(server.channel, kOfMany));
  ASSERT_THAT(Put(server.channel, "p"), IsOk()) << "it comes after them";
  auto late = send(*other, kOfOther);
  ASSERT_THAT(Put(*other, "p"), IsOk()) << "likewise";
  for (int i = 0; i < 10; ++i) go_on.Put(true);
  EXPECT_EQ(server.sizes.Take(), kOfMany);
  EXPECT_EQ(server.sizes.Take(), kOfOther);
  EXPECT_THAT(first.Wait(), IsOk());
  EXPECT_THAT(late.Wait(), IsOk());
  for (auto& each : many) EXPECT_THAT(each.Wait(), IsOk());
}

TEST(PerfTest, AGetWithoutMemoryFailsAlone) {
  ServerOptions options = {.extensions = {PerfExtension()}};
  options.pool.limit_bytes = 16 << 20;
  TestServer server(std::move(options));
  const auto channel = server.Connect();
  EXPECT_THAT(Get(channel, 64 << 20).status(), HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(Get(channel, 5).value(), "ggggg");
}

TEST(PerfTest, AServerTakesAnExtensionOnce) {
  Server server({.extensions = {PerfExtension(), PerfExtension()}});
  const absl::Status status = server.Listen("tcp://127.0.0.1:0").status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("\"perf\" twice"));
}

TEST(PerfTest, AuthorizeIsAskedAboutIt) {
  TestServer server({.authorize = [](const ServerContext&) { return absl::PermissionDeniedError("no"); },
                     .extensions = {PerfExtension()}});
  const auto channel = server.Connect();
  EXPECT_THAT(Put(channel, "p").status(), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(OpenRaw(channel, Service::ECHO).status(), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST(PerfTest, ARawPortDoesWhatItsServiceSays) {
  TestServer server({.extensions = {PerfExtension()}});
  const auto channel = server.Connect();
  const uint64_t size = 1000;
  std::string bytes = Filled(size);
  {
    RawSocket echo = OpenRaw(channel, Service::ECHO)->ConnectWithToken();
    EXPECT_TRUE(echo.Send(bytes.data(), size, false) && echo.Receive(bytes.data(), size, true));
  }
  {
    RawSocket ping_pong = OpenRaw(channel, Service::PING_PONG)->ConnectWithToken();
    EXPECT_TRUE(ping_pong.Send(&size, sizeof(size), false));
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(ping_pong.Send(bytes.data(), size, true) && ping_pong.Receive(bytes.data(), size, false));
    }
  }
  EXPECT_EQ(bytes, Filled(size));
  {
    RawSocket sink = OpenRaw(channel, Service::SINK)->ConnectWithToken();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(sink.Send(&size, sizeof(size), false) && sink.Send(bytes.data(), size, false));
      EXPECT_TRUE(sink.Receive(bytes.data(), 1, false));
    }
  }
  {
    RawSocket source = OpenRaw(channel, Service::SOURCE)->ConnectWithToken();
    EXPECT_TRUE(source.Send(&size, sizeof(size), false) && source.Receive(bytes.data(), size, false));
  }
}

TEST(PerfTest, ARawPortServesNoMoreBytesAtOnceThanItSays) {
  TestServer server({.extensions = {PerfExtension()}});
  const auto channel = server.Connect();
  for (const Service service : {Service::PING_PONG, Service::SINK, Service::SOURCE}) {
    RawSocket socket = OpenRaw(channel, service)->ConnectWithToken();
    const uint64_t size = internal::RawSocketPort::kBytesMax + 1;
    socket.Send(&size, sizeof(size), false);
    EXPECT_TRUE(IsClosed(socket));
  }
}

TEST(PerfTest, ARawPortServesOnlyTheOneThatHasTheToken) {
  TestServer server({.extensions = {PerfExtension()}});
  const Port port = *OpenRaw(server.Connect(), Service::ECHO);
  RawSocket wrong = port.Connect();
  std::string token = port.token;
  token.back() ^= 1;
  EXPECT_TRUE(wrong.Send(token.data(), token.size(), false));
  EXPECT_TRUE(IsClosed(wrong));
  RawSocket right = port.Connect();
  for (const char byte : port.token) EXPECT_TRUE(right.Send(&byte, 1, false));
  EXPECT_TRUE(right.Send("x", 1, false));
  char answer = 0;
  EXPECT_TRUE(right.Receive(&answer, 1, false));
  EXPECT_EQ(answer, 'x');
  EXPECT_THAT(RawSocket::Connect(port.address, kLong), Not(IsOk()));
}

TEST(PerfTest, ARawPortTakesNoConnectionOfAnotherHost) {
  if (TestHost() != "127.0.0.1") GTEST_SKIP() << "needs another address of this machine";
  TestServer server({.extensions = {PerfExtension()}});
  const Port port = *OpenRaw(server.Connect(), Service::ECHO);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in from = {};
  from.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, "127.0.0.2", &from.sin_addr), 1);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
  ASSERT_EQ(connect(fd.get(), port.address.get(), port.address.length_bytes()), 0);
  RawSocket stranger(std::move(fd));
  stranger.Send(port.token.data(), port.token.size(), false);
  EXPECT_TRUE(IsClosed(stranger));
  RawSocket right = port.ConnectWithToken();
  EXPECT_TRUE(right.Send("x", 1, false));
  EXPECT_FALSE(IsClosed(right));
}

TEST(PerfTest, AThousandConnectionsToARawPortDoNotMatter) {
  TimedServer server({.accept = kLong});
  const Port port = *OpenRaw(server.channel, Service::ECHO);
  std::vector<RawSocket> strangers;
  for (int i = 0; i < 500; ++i) {
    strangers.push_back(port.Connect());
    if (i % 2 == 0) strangers.back().Send("half", 4, false);
    port.Connect();  // And closed.
  }
  EXPECT_TRUE(IsClosed(strangers.front()));  // It made room.
  RawSocket right = port.ConnectWithToken();
  EXPECT_TRUE(right.Send("x", 1, false));
  EXPECT_FALSE(IsClosed(right));
  for (RawSocket& stranger : strangers) EXPECT_TRUE(IsClosed(stranger));
}

TEST(PerfTest, RawPortsAreFew) {
  TimedServer server({.accept = kLong});
  std::vector<RawSocket> sockets;
  for (int i = 0; i < PerfService::kRawPortsOfHostMax; ++i) {
    sockets.push_back(OpenRaw(server.channel, Service::ECHO)->ConnectWithToken());
  }
  EXPECT_THAT(OpenRaw(server.channel, Service::ECHO).status(), HasCode(absl::StatusCode::kResourceExhausted));
  sockets.pop_back();
  EXPECT_TRUE(Eventually([&] { return OpenRaw(server.channel, Service::ECHO).ok(); }));
}

TEST(PerfTest, AHostLeavesARawPortToOthers) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "only loopback has a second address everywhere";
  TimedServer server({.accept = kLong});
  std::vector<RawSocket> sockets;
  for (int i = 0; i < PerfService::kRawPortsOfHostMax; ++i) {
    sockets.push_back(OpenRaw(server.channel, Service::ECHO)->ConnectWithToken());
  }
  const absl::Status refused = OpenRaw(server.channel, Service::ECHO).status();
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("3 of this host"));
  const auto other =
      Channel::Connect(server.channel->peer_address(), {.connection = {.local_address = "127.0.0.2"}});
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(OpenRaw(*other, Service::ECHO), IsOk());
  EXPECT_THAT(OpenRaw(*other, Service::ECHO).status(), HasCode(absl::StatusCode::kResourceExhausted))
      << "there are no more than four";
}

TEST(PerfTest, ARawPortThatGetsNoTokenCloses) {
  TimedServer server({.accept = absl::Seconds(2)});
  const Port port = *OpenRaw(server.channel, Service::ECHO);
  RawSocket mute = port.Connect();
  EXPECT_TRUE(IsClosed(mute));
  EXPECT_TRUE(Eventually([&] { return !RawSocket::Connect(port.address, kLong).ok(); }));
}

TEST(PerfTest, ARawPortEndsAfterItsTime) {
  TimedServer server({.raw_life = absl::Seconds(2)});
  RawSocket busy = OpenRaw(server.channel, Service::ECHO)->ConnectWithToken();
  RawSocket idle = OpenRaw(server.channel, Service::ECHO)->ConnectWithToken();
  char byte = 'x';
  EXPECT_TRUE(busy.Send(&byte, 1, false) && busy.Receive(&byte, 1, false));
  while (busy.Send(&byte, 1, false) && busy.Receive(&byte, 1, false)) continue;
  EXPECT_TRUE(IsClosed(idle));
}

TEST(PerfTest, AServerWithCredentialsOpensNoRawPort) {
  TimedServer server({.queue_pairs_of_sockets = true}, {.credentials = TlsCredentials()});
  for (const Service service : {Service::ECHO, Service::QUEUE_PAIR}) {
    EXPECT_THAT(OpenRaw(server.channel, service).status(), HasCode(absl::StatusCode::kFailedPrecondition));
  }
}

TEST(PerfTest, AnUnknownRawServiceIsRefused) {
  TestServer server({.extensions = {PerfExtension()}});
  EXPECT_THAT(OpenRaw(server.Connect(), static_cast<Service>(99)).status(),
              HasCode(absl::StatusCode::kInvalidArgument));
}

TEST(PerfTest, QueuePairsAreOfNetworksThatAreNotSockets) {
  TestServer server({.extensions = {PerfExtension()}});
  const auto port = OpenRaw(server.Connect(), Service::QUEUE_PAIR);
  if (TestScheme() == "tcp") {
    EXPECT_THAT(port.status(), HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(std::string(port.status().message()), HasSubstr("raw sockets"));
  } else {
    ASSERT_THAT(port.status(), IsOk());
    const auto client = port->ConnectQueuePair();
    ASSERT_THAT(client.status(), IsOk());
    EXPECT_THAT((*client)->ExchangeOne(), IsOk());
  }
}

TEST(PerfTest, AQueuePairDoesWhatItsClientSays) {
  TimedServer server({.queue_pairs_of_sockets = true});
  using Kind = RawPlan::Kind;
  for (const Kind kind : {Kind::kExchange, Kind::kClientReads, Kind::kServerReads}) {
    const auto client =
        OpenRaw(server.channel, Service::QUEUE_PAIR)
            ->ConnectQueuePair({.kind = kind, .depth = 2, .bytes = 70'000, .answer_bytes = 1});
    ASSERT_THAT(client.status(), IsOk());
    const auto ran =
        kind == Kind::kExchange ? (*client)->Exchange({.count = 3}) : (*client)->Operate({.count = 3});
    ASSERT_THAT(ran.status(), IsOk());
    EXPECT_EQ(ran->count, 3);
  }
}

TEST(PerfTest, AQueuePairIsForTheOneThatHasTheToken) {
  TimedServer server({.queue_pairs_of_sockets = true});
  const Port port = *OpenRaw(server.channel, Service::QUEUE_PAIR);
  Port wrong = port;
  wrong.token.back() ^= 1;
  EXPECT_THAT(wrong.ConnectQueuePair().status(), HasCode(absl::StatusCode::kPermissionDenied));
  const auto right = port.ConnectQueuePair();
  ASSERT_THAT(right.status(), IsOk());
  EXPECT_THAT((*right)->ExchangeOne(), IsOk());
}

TEST(PerfTest, QueuePairsCountAsRawPorts) {
  TimedServer server({.accept = kLong, .queue_pairs_of_sockets = true});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < PerfService::kRawPortsOfHostMax; ++i) {
    auto client = OpenRaw(server.channel, Service::QUEUE_PAIR)->ConnectQueuePair();
    ASSERT_THAT(client.status(), IsOk());
    clients.push_back(*std::move(client));
  }
  for (const Service service : {Service::ECHO, Service::QUEUE_PAIR}) {
    EXPECT_THAT(OpenRaw(server.channel, service).status(), HasCode(absl::StatusCode::kResourceExhausted));
  }
  clients.pop_back();
  EXPECT_TRUE(Eventually([&] { return OpenRaw(server.channel, Service::QUEUE_PAIR).ok(); }));
  EXPECT_THAT(clients.front()->ExchangeOne(), IsOk());
}

TEST(PerfTest, AQueuePairThatNoClientConnectsToEnds) {
  TimedServer server({.accept = kExpires, .queue_pairs_of_sockets = true});
  for (int i = 0; i < PerfService::kRawPortsOfHostMax; ++i) {
    ASSERT_THAT(OpenRaw(server.channel, Service::QUEUE_PAIR), IsOk());
  }
  EXPECT_TRUE(Eventually([&] { return OpenRaw(server.channel, Service::QUEUE_PAIR).ok(); }));
}

TEST(PerfTest, AQueuePairEndsAfterItsTime) {
  TimedServer server({.raw_life = absl::Seconds(2), .queue_pairs_of_sockets = true});
  const auto busy = OpenRaw(server.channel, Service::QUEUE_PAIR)->ConnectQueuePair();
  ASSERT_THAT(busy.status(), IsOk());
  const auto idle = OpenRaw(server.channel, Service::QUEUE_PAIR)->ConnectQueuePair();
  ASSERT_THAT(idle.status(), IsOk());
  while ((*busy)->ExchangeOne().ok()) continue;
  EXPECT_TRUE(Eventually([&] { return !(*idle)->ExchangeOne().ok(); }));
}

TEST(PerfTest, ShutdownEndsWhatIsBeingMeasured) {
  TestServer server({.extensions = {PerfExtension()}});
  const auto channel = server.Connect();
  const Port waiting = *OpenRaw(channel, Service::ECHO);
  RawSocket raw = OpenRaw(channel, Service::ECHO)->ConnectWithToken();
  char byte = 'x';
  EXPECT_TRUE(raw.Send(&byte, 1, false) && raw.Receive(&byte, 1, false));
  std::vector<PendingCall<perf::Perf::GetResults>> gets;
  for (int i = 0; i < 8; ++i) {
    auto call = perf::PerfStub(channel).Get();
    call.request().setBytes(32 << 20);
    gets.push_back(call.Send());
  }
  server.server.Shutdown(absl::Now()).IgnoreError();
  EXPECT_TRUE(IsClosed(raw));
  EXPECT_THAT(RawSocket::Connect(waiting.address, kLong), Not(IsOk()));
  for (auto& get : gets) {
    const absl::Status status = get.Wait().status();
    EXPECT_TRUE(status.ok() || absl::IsUnavailable(status)) << status;
  }
}

TEST(PerfTest, ShutdownEndsQueuePairs) {
  TimedServer server({.accept = kLong, .queue_pairs_of_sockets = true});
  const Port waiting = *OpenRaw(server.channel, Service::QUEUE_PAIR);
  const auto client = OpenRaw(server.channel, Service::QUEUE_PAIR)->ConnectQueuePair();
  ASSERT_THAT(client.status(), IsOk());
  EXPECT_THAT((*client)->ExchangeOne(), IsOk());
  server.Close();
  EXPECT_THAT((*client)->ExchangeOne(), Not(IsOk()));
  EXPECT_THAT(waiting.ConnectQueuePair(), Not(IsOk()));
  EXPECT_THAT(OpenRaw(server.channel, Service::QUEUE_PAIR).status(), HasCode(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace hawser
