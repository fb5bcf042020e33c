// Memory of a client's own that is registered once: one-sided operations work on it in place.

#include "hawser/rpc/registered_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/runtime.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/child.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/memory/user_regions.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/hidden_memory.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;

// The pool of the client: an operation on memory that is not registered needs as much of it as the operation
// has bytes.
constexpr size_t kPoolBytes = 4 << 20;
constexpr size_t kBytes = 6 << 20;

class GrantAll final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    return context.Grant(*memory, {.access = access}, reply.initTicket());
  }
  Access access = Access::kReadWrite;
  std::optional<SharedMemory> memory;
};

enum class Over { kTestFabric, kDevice };

class RegisteredMemoryTest : public ::testing::TestWithParam<Over> {
 protected:
  void SetUp() override {
    ServerOptions server_options;
    ChannelOptions options;
    if (GetParam() == Over::kDevice) {
      server_options.runtime = NewRuntime(BufferPoolOptions());
      options.runtime = NewRuntime({.limit_bytes = kPoolBytes});
    } else {
      server_options.pollers = 1;
      options.runtime = *Runtime::Create(TestScheme(), {.pool = {.limit_bytes = kPoolBytes}});
    }
    runtime_ = options.runtime;
    has_atomics_ = runtime_->fabric().atomics() != fabric::Atomics::kNone;
    if (has_atomics_) probe_.access = Access::kReadWrite | Access::kAtomic;
    server_ = std::make_unique<Server>(std::move(server_options));
    ASSERT_THAT(server_->AddService(&probe_), IsOk());
    ASSERT_THAT(server_->AddService(&act_), IsOk());
    const absl::StatusOr<std::string> listening =
        server_->Listen(GetParam() == Over::kDevice ? "rdma://127.0.0.1:0" : TestUri());
    ASSERT_THAT(listening.status(), IsOk());
    absl::StatusOr<SharedMemory> shared = server_->Share(kBytes);
    ASSERT_THAT(shared.status(), IsOk());
    for (size_t i = 0; i < kBytes; ++i) shared->data()[i] = static_cast<uint8_t>(i * 7 + i / 256);
    probe_.memory.emplace(*std::move(shared));
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(*listening, std::move(options));
    ASSERT_THAT(channel.status(), IsOk());
    channel_ = *std::move(channel);
    const auto granted = memory_probe::MemoryProbeStub(channel_).Grant().Send().Wait();
    ASSERT_THAT(granted.status(), IsOk());
    remote_.emplace(channel_, (*granted)->getTicket());
  }

  // Of a device in memory, which all tests use: there is one at a time.
  static std::shared_ptr<transport::Runtime> NewRuntime(const BufferPoolOptions& pool) {
    static auto* const verbs = new fabric::ExecutingVerbs({});
    transport::RuntimeOptions options;
    options.pollers = 1;
    options.pool = pool;
    return *transport::Runtime::CreateOn(
        fabric::NewVerbsFabric({.device = "fake0", .library = &verbs->library()}).value(), options, true);
  }

  std::string Expected(size_t offset, size_t length) const {
    return std::string(reinterpret_cast<const char*>(probe_.memory->data()) + offset, length);
  }

  GrantAll probe_;
  ProbeServiceImpl act_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Runtime> runtime_;  // Of the client.
  bool has_atomics_ = false;
  std::shared_ptr<Channel> channel_;
  std::optional<RemoteMemory> remote_;
};

std::string Text(absl::Span<const uint8_t> bytes) { return std::string(bytes.begin(), bytes.end()); }

TEST_P(RegisteredMemoryTest, OperationsOnItNeedNoMemoryOfThePool) {
  std::vector<uint8_t> own(kBytes);
  const absl::Status copied = remote_->Read(0, absl::MakeSpan(own)).Wait();
  EXPECT_THAT(copied, HasCode(absl::StatusCode::kResourceExhausted)) << "the test shows nothing";
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  EXPECT_EQ(registered->data(), own.data());
  EXPECT_EQ(registered->size_bytes(), kBytes);
  EXPECT_THAT(remote_->Read(0, registered->bytes()).Wait(), IsOk());
  EXPECT_TRUE(Text(own) == Expected(0, kBytes));
  memset(own.data(), 'w', kBytes);
  EXPECT_THAT(remote_->Write(0, registered->bytes()).Wait(), IsOk());
  EXPECT_TRUE(Expected(0, kBytes) == std::string(kBytes, 'w'));
  EXPECT_THAT(registered->Release(), IsOk());
  EXPECT_EQ(registered->size_bytes(), 0u);
  EXPECT_THAT(remote_->Read(0, absl::MakeSpan(own)).Wait(), HasCode(absl::StatusCode::kResourceExhausted));
}

TEST_P(RegisteredMemoryTest, AnyPartOfItCanBeUsed) {
  std::vector<uint8_t> own(1 << 20);
  const absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data() + 10, .length_bytes = own.size() - 20});
  ASSERT_THAT(registered.status(), IsOk());
  EXPECT_THAT(remote_->Read({{0, 8}, {1000, 12}}, registered->bytes().subspan(3, 20)).Wait(), IsOk());
  EXPECT_EQ(Text(registered->bytes().subspan(3, 20)), Expected(0, 8) + Expected(1000, 12));
  // Beyond its end it is copied, and nothing is lost.
  EXPECT_THAT(remote_->Read(0, absl::MakeSpan(own)).Wait(), IsOk());
  EXPECT_TRUE(Text(own) == Expected(0, own.size()));
  if (!has_atomics_) return;
  uint64_t before = 0;
  memset(own.data() + 16, 0, 8);
  auto* const word = reinterpret_cast<uint64_t*>(own.data() + 16);
  EXPECT_THAT(remote_->FetchAdd(0, 1, *word).Wait(), IsOk());
  memcpy(&before, own.data(), 8);
  EXPECT_EQ(*word, before) << "an atomic returns what was there";
}

TEST_P(RegisteredMemoryTest, MemoryOnDemandIsUsedAsThatOfTheHost) {
  std::vector<uint8_t> own(kBytes);
  const absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size(), .kind = MemoryKind::kOnDemand});
  if (TestScheme() == "rdma" && absl::IsUnimplemented(registered.status())) {
    EXPECT_THAT(std::string(registered.status().message()), HasSubstr("register memory on demand"));
    return;
  }
  ASSERT_THAT(registered.status(), IsOk());
  EXPECT_THAT(remote_->Read(0, registered->bytes()).Wait(), IsOk());
  EXPECT_TRUE(Text(own) == Expected(0, kBytes));
}

TEST_P(RegisteredMemoryTest, WhatIsNoMemoryIsRefused) {
  std::vector<uint8_t> own(100);
  const auto code = [&](const MemoryRange& range) { return channel_->Register(range).status().code(); };
  EXPECT_EQ(code({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.address = own.data()}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.address = own.data(), .length_bytes = SIZE_MAX}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.address = own.data(), .length_bytes = 100, .kind = static_cast<MemoryKind>(77)}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.address = own.data(), .length_bytes = 100, .kind = MemoryKind::kDmabuf}),
            absl::StatusCode::kInvalidArgument);
}

TEST_P(RegisteredMemoryTest, ItMayOutliveItsChannelAndBeMoved) {
  std::vector<uint8_t> own(100);
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  RegisteredMemory moved = *std::move(registered);
  EXPECT_THAT(registered->Release(), HasCode(absl::StatusCode::kFailedPrecondition));
  remote_.reset();
  channel_.reset();
  RegisteredMemory other = std::move(moved);
  EXPECT_EQ(other.size_bytes(), 100u);
  EXPECT_THAT(other.Release(), IsOk());
  EXPECT_THAT(other.Release(), HasCode(absl::StatusCode::kFailedPrecondition));
}

TEST_P(RegisteredMemoryTest, OnAPollerItIsReleasedWhenNothingUsesIt) {
  std::vector<uint8_t> own(4096);
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  RemoteOperation read = remote_->Read(0, registered->bytes());
  Box<absl::Status> released;
  read.Then([&](const absl::Status& status) {
    EXPECT_THAT(status, IsOk());
    released.Put(registered->Release());  // The memory is free since before the callback.
  });
  EXPECT_THAT(released.Take(), IsOk());
}

TEST_P(RegisteredMemoryTest, AChildLeavesItAlone) {
  if (TestScheme() == "rdma") GTEST_SKIP() << "the device of a child is not usable";
  std::vector<uint8_t> own(4096);
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  EXPECT_TRUE(InChild([&] {
    if (!absl::IsFailedPrecondition(registered->Release())) return false;
    if (!absl::IsFailedPrecondition(channel_->Register({.address = own.data(), .length_bytes = 1}).status()))
      return false;
    RegisteredMemory gone = *std::move(registered);
    return true;
  }));
  EXPECT_THAT(remote_->Read(0, registered->bytes()).Wait(), IsOk());
}

INSTANTIATE_TEST_SUITE_P(Over, RegisteredMemoryTest,
                         ::testing::ValuesIn(TestScheme() == "tcp"
                                                 ? std::vector<Over>{Over::kTestFabric, Over::kDevice}
                                                 : std::vector<Over>{Over::kTestFabric}),
                         [](const auto& over) {
                           return over.param == Over::kDevice ? "Device" : "TestFabric";
                         });

// ---- Memory that the processor does not see. Each access of it by this process is a SIGSEGV.

class HiddenMemoryTest : public RegisteredMemoryTest {};

TEST_P(HiddenMemoryTest, ANicReadsIntoItAndWritesFromIt) {
  const HiddenMemory hidden(kBytes);
  const absl::StatusOr<RegisteredMemory> registered = channel_->Register(hidden.range());
  ASSERT_THAT(registered.status(), IsOk());
  for (const size_t length : {size_t{1}, size_t{8}, size_t{200}, size_t{5000}, kBytes}) {
    EXPECT_THAT(remote_->Read(0, registered->bytes().first(length)).Wait(), IsOk()) << length;
    EXPECT_TRUE(hidden.Contents(0, length) == Expected(0, length)) << length;
  }
  const std::string text(3000, 'g');
  hidden.Fill(4096 + 5, text);
  EXPECT_THAT(remote_->Write(100, registered->bytes().subspan(4096 + 5, text.size())).Wait(), IsOk());
  EXPECT_TRUE(Expected(100, text.size()) == text);
  // As few bytes as a device could take into the work request: 192 by default. They are not copied there.
  for (const size_t length : {size_t{1}, size_t{8}, size_t{192}, size_t{193}}) {
    const std::string few(length, static_cast<char>('a' + length % 26));
    hidden.Fill(length, few);
    EXPECT_THAT(remote_->Write(9000, registered->bytes().subspan(length, length)).Wait(), IsOk()) << length;
    EXPECT_EQ(Expected(9000, length), few);
  }
}

TEST_P(HiddenMemoryTest, ItsOffsetInTheDmabufCounts) {
  const HiddenMemory hidden(64 << 10);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  MemoryRange range = hidden.range();
  range.address += page + 24;
  range.length_bytes = page;
  range.dmabuf.offset = 2 * page + 24;
  const absl::StatusOr<RegisteredMemory> registered = channel_->Register(range);
  ASSERT_THAT(registered.status(), IsOk());
  EXPECT_THAT(remote_->Read(500, registered->bytes().subspan(10, 100)).Wait(), IsOk());
  EXPECT_EQ(hidden.Contents(2 * page + 24 + 10, 100), Expected(500, 100));
  range.dmabuf.offset = 2 * page + 25;
  const absl::Status status = channel_->Register(range).status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(status.message()), HasSubstr("different places of a page"));
}

TEST_P(HiddenMemoryTest, WhatCannotBeDoneInPlaceIsRefusedAndNotCopied) {
  const HiddenMemory hidden(64 << 10);
  absl::StatusOr<RegisteredMemory> registered = channel_->Register(
      {.address = hidden.data(), .length_bytes = 8192, .kind = MemoryKind::kHost, .cpu_visible = false});
  ASSERT_THAT(registered.status(), IsOk());
  // Its last byte is beyond what is registered.
  const absl::Status beyond = remote_->Read(0, {hidden.data() + 100, 8192 - 99}).Wait();
  EXPECT_THAT(beyond, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("no RegisteredMemory has all of it"));
  EXPECT_THAT(remote_->Write(0, {hidden.data() + 100, 8192 - 99}).Wait(),
              HasCode(absl::StatusCode::kInvalidArgument));
  const absl::Status atomic = remote_->FetchAdd(0, 1, *reinterpret_cast<uint64_t*>(hidden.data())).Wait();
  EXPECT_THAT(atomic, HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(std::string(atomic.message()), HasSubstr("atomic"));
}

INSTANTIATE_TEST_SUITE_P(Over, HiddenMemoryTest,
                         ::testing::ValuesIn(TestScheme() == "tcp" ? std::vector<Over>{Over::kDevice}
                                                                   : std::vector<Over>{}));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(HiddenMemoryTest);

TEST(HiddenMemoryOverTcpTest, IsRefusedWithTheReason) {
  if (TestScheme() != "tcp") GTEST_SKIP() << "not TCP";
  ProbeServiceImpl act;
  Server server;
  ASSERT_THAT(server.AddService(&act), IsOk());
  const absl::StatusOr<std::string> listening = server.Listen(TestUri());
  ASSERT_THAT(listening.status(), IsOk());
  const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(*listening);
  ASSERT_THAT(channel.status(), IsOk());
  const HiddenMemory hidden(4096);
  const absl::Status dmabuf = (*channel)->Register(hidden.range()).status();
  EXPECT_THAT(dmabuf, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(dmabuf.message()), HasSubstr("the processor copies every byte"));
  const absl::Status host =
      (*channel)->Register({.address = hidden.data(), .length_bytes = 4096, .cpu_visible = false}).status();
  EXPECT_THAT(host, HasCode(absl::StatusCode::kUnimplemented));
}

// ---- Over TCP a handler that holds the poller of the server holds operations.

class HeldTest : public RegisteredMemoryTest {
 protected:
  void SetUp() override {
    if (TestScheme() != "tcp") GTEST_SKIP() << "a NIC answers while a handler holds the poller";
    act_.on_act = [this](ServerContext&, uint64_t) {
      holds_ = true;
      Eventually([this] { return handler_ends_.load(); });
      return absl::OkStatus();
    };
    RegisteredMemoryTest::SetUp();
  }
  void TearDown() override { handler_ends_ = true; }

  void Hold() {
    SendAct(channel_, 1).Forget();
    ASSERT_TRUE(Eventually([this] { return holds_.load(); }));
  }

  std::atomic<bool> holds_{false}, handler_ends_{false};
};

TEST_P(HeldTest, ReleaseReturnsWhenTheOperationHasEnded) {
  std::vector<uint8_t> own(4096, 'x');
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  ASSERT_THAT(remote_->Read(0, registered->bytes()).Wait(), IsOk());
  Hold();
  memset(own.data(), 'x', own.size());
  // Nothing but Cancel() ends it.
  RemoteOperation held = remote_->Read(0, registered->bytes(), {.timeout = absl::InfiniteDuration()});
  std::atomic<bool> released{false};
  std::thread releases([&] {
    EXPECT_THAT(registered->Release(), IsOk());
    released = true;
  });
  // Release() has begun: nothing uses it in place any more. It waits as long as the operation does not end.
  transport::UserRegions& regions = runtime_->user_regions();
  EXPECT_TRUE(Eventually([&] { return !regions.Find(own.data(), own.size()).use; }));
  std::vector<uint8_t> other(8);
  EXPECT_THAT(remote_->Read(0, absl::MakeSpan(other), {.timeout = absl::ZeroDuration()}).Wait(),
              HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_TRUE(regions.any());
  EXPECT_FALSE(released);
  held.Cancel();
  EXPECT_THAT(held.Wait(), HasCode(absl::StatusCode::kCancelled));
  releases.join();
  EXPECT_FALSE(regions.any());
  // No NIC touches it any more, though the server has not answered.
  EXPECT_EQ(Text(own), std::string(4096, 'x'));
  memset(own.data(), 'y', own.size());
  handler_ends_ = true;
  EXPECT_THAT(remote_->Read(0, absl::MakeSpan(other)).Wait(), IsOk());
  EXPECT_EQ(Text(own), std::string(4096, 'y'));
}

TEST_P(HeldTest, InACallbackReleaseIsRefusedWhileAnOperationUsesIt) {
  std::vector<uint8_t> own(4096);
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  ASSERT_THAT(remote_->Read(0, registered->bytes()).Wait(), IsOk());
  Hold();
  RemoteOperation held = remote_->Read(0, registered->bytes(), {.timeout = absl::InfiniteDuration()});
  Box<absl::Status> refused;
  std::vector<uint8_t> other(8);
  remote_->Read(0, absl::MakeSpan(other), {.timeout = absl::ZeroDuration()}).Then([&](const absl::Status&) {
    refused.Put(registered->Release());
  });
  EXPECT_THAT(refused.Take(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(registered->size_bytes(), 4096u) << "it stays registered";
  held.Cancel();
  EXPECT_THAT(held.Wait(), HasCode(absl::StatusCode::kCancelled));
  EXPECT_THAT(registered->Release(), IsOk());
}

TEST_P(HeldTest, WhenTheChannelIsClosedItIsFree) {
  std::vector<uint8_t> own(4096);
  absl::StatusOr<RegisteredMemory> registered =
      channel_->Register({.address = own.data(), .length_bytes = own.size()});
  ASSERT_THAT(registered.status(), IsOk());
  ASSERT_THAT(remote_->Read(0, registered->bytes()).Wait(), IsOk());
  Hold();
  RemoteOperation held = remote_->Read(0, registered->bytes(), {.timeout = absl::InfiniteDuration()});
  channel_->Close();
  EXPECT_THAT(registered->Release(), IsOk());
  EXPECT_THAT(held.Wait().code(),
              ::testing::AnyOf(absl::StatusCode::kCancelled, absl::StatusCode::kUnavailable));
}

INSTANTIATE_TEST_SUITE_P(Over, HeldTest, ::testing::Values(Over::kTestFabric));

}  // namespace
}  // namespace hawser
