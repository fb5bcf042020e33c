// As failed_call_test.cc, for the other functions that return a Status. Here the process can also run out of
// threads, at any of several.

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/observe/status_server.h"
#include "hawser/rpc/executor.h"
#include "hawser/rpc/otlp_trace_sink.h"
#include "hawser/rpc/registered_memory.h"
#include "hawser/rpc/status_page.h"
#include "hawser/rpc/trace.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/temporary_folder.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/transport/testing/gated_fabric.h"
#include "hawser/transport/memory/user_regions.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

// ---- A process without threads

static std::atomic<int> threads_left{1 << 30};

// The pthread_create() of a sanitizer, if the program has one. Without it the C library's is called.
extern "C" [[gnu::weak]] int __interceptor_pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*),
                                                          void*);

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                              void* argument) noexcept {
  if (threads_left.fetch_sub(1) <= 0) return EAGAIN;
  using Create = decltype(&__interceptor_pthread_create);
  static const Create create = __interceptor_pthread_create != nullptr
                                   ? __interceptor_pthread_create
                                   : reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// While this object exists the process can start so many threads only.
class FewThreads {
 public:
  explicit FewThreads(int count) { threads_left = count; }
  ~FewThreads() { threads_left = 1 << 30; }
};

ptrdiff_t CountIn(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return std::distance(begin(all), end(all));
}

// What the process has, which a function that fails leaves as it was. A thread that has been joined may be
// counted for a moment.
class Possessions {
 public:
  void ExpectTheSame() const {
    EXPECT_TRUE(Eventually([this] { return CountIn("/proc/self/task") <= threads_; }))
        << CountIn("/proc/self/task") << " threads, " << threads_ << " before";
    EXPECT_TRUE(Eventually([this] { return CountIn("/proc/self/fd") <= files_; }))
        << CountIn("/proc/self/fd") << " file descriptors, " << files_ << " before";
  }

 private:
  const ptrdiff_t threads_ = CountIn("/proc/self/task");
  const ptrdiff_t files_ = CountIn("/proc/self/fd");
};

void ExpectNoThread(const absl::Status& status) {
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot start the thread"));
}

// Runs `fails` twice: what the process has after the first time, the log's thread for example, it keeps.
template <typename Fails>
void ExpectNothingIsLeft(Fails fails) {
  std::thread([] {}).join();  // ThreadSanitizer starts a thread of its own with the program's first thread.
  fails();
  const Possessions before;
  fails();
  before.ExpectTheSame();
}

// ---- Threads, files and ports

TEST(LeftBehindTest, AnExecutorWhoseLastThreadDoesNotStartHasNone) {
  ExpectNothingIsLeft([] {
    const FewThreads few(3);
    ExpectNoThread(Executor::Create({.threads = 4}).status());
  });
  EXPECT_THAT(Executor::Create({.threads = 4}).status(), IsOk());
}

TEST(LeftBehindTest, ARuntimeWhoseLastPollerDoesNotStartHasNone) {
  const transport::RuntimeOptions options = {.pollers = 3};
  std::weak_ptr<fabric::Fabric> device;
  ExpectNothingIsLeft([&] {
    const FewThreads few(2);
    ExpectNoThread(transport::Runtime::Create(TestScheme(), options).status());
    std::shared_ptr<fabric::Fabric> fabric = NewTestFabric();
    device = fabric;
    threads_left = 2;
    ExpectNoThread(transport::Runtime::CreateOn(std::move(fabric), options, /*start_threads=*/true).status());
  });
  EXPECT_TRUE(device.expired()) << "the device is still open";
  EXPECT_THAT(transport::Runtime::Create(TestScheme(), options).status(), IsOk());
}

// A core that there is not is found when the thread is bound to it.
TEST(LeftBehindTest, ARuntimeWhoseLastPollerHasNoCoreHasNone) {
  const int core = sched_getcpu();
  ExpectNothingIsLeft([&] {
    EXPECT_THAT(transport::Runtime::Create(TestScheme(), {.pollers = 2, .poller = {.cores = {core, 1 << 20}}})
                    .status(),
                HasCode(absl::StatusCode::kInvalidArgument));
  });
}

TEST(LeftBehindTest, AFileForSpansIsMadeOnceNothingElseCanFail) {
  TemporaryFolder folder;
  using Options = OtlpTraceSink::Options;
  const std::string path = folder.path() + "/spans.jsonl";
  const Options wrong[] = {
      {.path = path},
      {.path = path, .service_name = "a", .bytes_max = 0},
      {.path = path, .service_name = "a", .attributes = {{"", "no key"}}},
      {.path = path, .service_name = "a", .attributes = {{"zone", "1"}, {"zone", "2"}}},
  };
  for (const Options& options : wrong) {
    EXPECT_THAT(OtlpTraceSink::Open(options).status(), HasCode(absl::StatusCode::kInvalidArgument));
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  ExpectNothingIsLeft([&] {
    const FewThreads none(0);
    ExpectNoThread(OtlpTraceSink::Open({.path = path, .service_name = "a"}).status());
    EXPECT_FALSE(std::filesystem::exists(path));
  });
  // Nor does the thread stay if the file cannot be made.
  ExpectNothingIsLeft([&] {
    EXPECT_THAT(OtlpTraceSink::Open({.path = folder.path() + "/none/spans", .service_name = "a"}).status(),
                HasCode(absl::StatusCode::kNotFound));
  });
  EXPECT_THAT(OtlpTraceSink::Open({.path = path, .service_name = "a"}).status(), IsOk());
  EXPECT_TRUE(std::filesystem::exists(path));
}

// Fewer file descriptors than a status server needs: its socket has the last one.
class OneFileDescriptor {
 public:
  OneFileDescriptor() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = dup(0);  // The lowest that is free.
    close(next);
    const rlimit one = {static_cast<rlim_t>(next) + 1, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &one), 0);
  }
  ~OneFileDescriptor() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_ = {};
};

TEST(LeftBehindTest, AStatusServerThatDoesNotStartKeepsNeitherPortNorSource) {
  const auto used = std::make_shared<int>(0);
  const auto start = [&](const std::string& address) {
    return observe::StatusServer::Start(address, [used](observe::wire::Snapshot::Builder) {});
  };
  auto other = start("127.0.0.1:0");
  ASSERT_THAT(other.status(), IsOk());
  const std::string address = (*other)->url().substr(std::string("http://").size());
  ExpectNothingIsLeft(
      [&] { EXPECT_THAT(start(address).status(), HasCode(absl::StatusCode::kAlreadyExists)); });
  other->reset();
  ExpectNothingIsLeft([&] {
    const FewThreads none(0);
    ExpectNoThread(start(address).status());
  });
  ExpectNothingIsLeft([&] {
    absl::Status status;
    {
      const OneFileDescriptor one;
      status = start(address).status();
    }
    EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
    EXPECT_THAT(std::string(status.message()), HasSubstr("are there file descriptors left?"));
  });
  EXPECT_EQ(used.use_count(), 1) << "a source is kept";
  const auto page = start(address);
  EXPECT_THAT(page.status(), IsOk()) << "the port was kept";
}

TEST(LeftBehindTest, AStatusPageThatDoesNotStartKeepsNeitherPortNorMetrics) {
  const auto used = std::make_shared<int>(0);
  const OwnMetrics metrics = [used] { return std::string(); };
  auto other = StartStatusPage("127.0.0.1:0", metrics);
  ASSERT_THAT(other.status(), IsOk());
  const std::string address = (*other)->url().substr(std::string("http://").size());
  ExpectNothingIsLeft([&] {
    EXPECT_THAT(StartStatusPage(address, metrics).status(), HasCode(absl::StatusCode::kAlreadyExists));
  });
  other->reset();
  ExpectNothingIsLeft([&] {
    const FewThreads none(0);
    ExpectNoThread(StartStatusPage(address, metrics).status());
  });
  EXPECT_EQ(used.use_count(), 2) << "metrics are kept";  // `metrics` has the other one.
  const auto page = StartStatusPage(address, metrics);
  EXPECT_THAT(page.status(), IsOk()) << "the port was kept";
}

// ---- What is set

class CountingSink final : public TraceSink {
 public:
  void OnSpan(const Span&) override { ++spans; }
  std::atomic<int> spans{0};
};

TEST(LeftBehindTest, TheTraceSinkAndItsOptionsStayIfTheNextAreRefused) {
  const auto old = std::make_shared<CountingSink>(), next = std::make_shared<CountingSink>();
  ASSERT_THAT(SetTraceSink(old), IsOk());
  EXPECT_THAT(SetTraceSink(next, {.sample_rate = 2}), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SetTraceSink(next, {.sample_rate = 0, .peers_spans_per_second = -1}),
              HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(SetTraceSink(nullptr, {.sample_rate = -1}), HasCode(absl::StatusCode::kInvalidArgument));
  {
    TestServer server;
    EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
    // That of the client and that of the server.
    EXPECT_TRUE(Eventually([&] { return old->spans == 2; })) << old->spans;
  }
  EXPECT_EQ(next->spans, 0);
  EXPECT_EQ(next.use_count(), 1);
  EXPECT_THAT(SetTraceSink(nullptr), IsOk());
}

// Shutdown() and Wait() are refused there, whatever the deadline.
TEST(LeftBehindTest, AServerServesOnWhoseHandlerMayNotEndIt) {
  TestServer server;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    EXPECT_THAT(server.server.Shutdown(absl::InfiniteFuture()),
                HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(server.server.Shutdown(absl::InfinitePast()), HasCode(absl::StatusCode::kFailedPrecondition));
    EXPECT_THAT(server.server.Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  Taken taken(server.server);
  EXPECT_EQ(taken.Get().getServer().getState(), observe::wire::Server::State::SERVING);
  EXPECT_THAT(SendAct(channel, 2).Wait(), IsOk()) << "calls are refused";
  EXPECT_THAT(SendAct(server.Connect(), 3).Wait(), IsOk()) << "clients are refused";
  EXPECT_EQ(server.probe.runs, 3);
  EXPECT_THAT(server.server.Shutdown(absl::Now() + kLong), IsOk());
}

// ---- Channels

TEST(LeftBehindTest, ConnectAnyOfServersThatAreDownKeepsNoChannelAndDialsNoMore) {
  std::vector<std::string> uris;
  {
    // At the same time: a port that is free again may be the next one's.
    TestServer one, other;
    uris = {one.uri, other.uri};
  }
  const std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  const auto held = std::make_shared<int>(0);  // By each channel that may still dial.
  {
    ChannelOptions options = {.runtime = runtime};
    options.on_state_change = [held](ChannelState, const absl::Status&) {};
    EXPECT_THAT(Channel::ConnectAny(uris, std::move(options)).status(),
                HasCode(absl::StatusCode::kUnavailable));
  }
  EXPECT_TRUE(Eventually([&] { return held.use_count() == 1; })) << held.use_count() - 1 << " channels";
  EXPECT_TRUE(Eventually([&] { return runtime.use_count() == 1; })) << runtime.use_count() - 1 << " owners";
  size_t connections = 0;
  for (size_t i = 0; i < runtime->poller_count(); ++i) {
    internal::RunAndWait(runtime->poller(i),
                         [&, i] { connections += runtime->poller(i).connection_count(); });
  }
  EXPECT_EQ(connections, 0u);
}

constexpr size_t kPoolBytes = 64 << 20;
constexpr size_t kMostOfThePool = 40 << 20;

// Neither fits beside the other, so what a refusal left behind would be missed.
TEST(LeftBehindTest, AChannelsBufferThatIsRefusedTakesNothingOfThePool) {
  TestServer server;
  const auto channel = server.Connect({.runtime = *transport::Runtime::CreateOn(
                                           NewTestFabric(), {.pool = {.limit_bytes = kPoolBytes}}, true)});
  absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(kMostOfThePool);
  ASSERT_THAT(buffer.status(), IsOk());
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(channel->AllocateBuffer(kMostOfThePool).status(),
                HasCode(absl::StatusCode::kResourceExhausted));
  }
  ASSERT_THAT(channel->AllocateBuffer(2 * kPoolBytes).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  buffer = absl::CancelledError("given back");
  EXPECT_TRUE(Eventually([&] { return channel->AllocateBuffer(kMostOfThePool).ok(); }));
}

TEST(LeftBehindTest, AHandlersBufferThatIsRefusedTakesNothingOfThePool) {
  TestServer server({.pool = {.limit_bytes = kPoolBytes}});
  absl::Status refused, given;
  server.probe.on_act = [&](ServerContext& context, uint64_t) {
    {
      const absl::StatusOr<Buffer> buffer = context.AllocateBuffer(kMostOfThePool);
      given = buffer.status();
      for (int i = 0; i < 100; ++i) refused = context.AllocateBuffer(kMostOfThePool).status();
    }
    EXPECT_TRUE(Eventually([&] { return context.AllocateBuffer(kMostOfThePool).ok(); }));
    return absl::OkStatus();
  };
  const auto channel = server.Connect();
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_THAT(given, IsOk());
  EXPECT_THAT(refused, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(SendAct(channel, 2).Wait(), IsOk());
}

// Registrations from here on are those of a test.
constexpr size_t kLarge = size_t{64} << 20;

struct Gated {
  std::shared_ptr<transport::GatedFabric> fabric =
      std::make_shared<transport::GatedFabric>(NewTestFabric(), kLarge);
  std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(fabric, {.pollers = 1}, /*start_threads=*/true);
};

TEST(LeftBehindTest, MemoryOfTheProgramThatIsNotRegisteredTakesNoPlace) {
  TestServer server;
  Gated gated;
  const auto channel = server.Connect({.runtime = gated.runtime});
  std::vector<uint8_t> memory(kLarge);
  const MemoryRange range = {.address = memory.data(), .length_bytes = memory.size()};
  gated.fabric->Refuse(true);
  for (const MemoryRange& wrong :
       {range, MemoryRange{}, MemoryRange{.address = memory.data()}, MemoryRange{.length_bytes = kLarge}}) {
    EXPECT_FALSE(channel->Register(wrong).ok());
    EXPECT_FALSE(gated.runtime->user_regions().any());
  }
  // More often than there are places.
  for (size_t i = 0; i <= transport::UserRegions::kRegionsMax; ++i)
    ASSERT_FALSE(channel->Register(range).ok());
  gated.fabric->Refuse(false);
  EXPECT_THAT(channel->Register(range).status(), IsOk());
}

// ---- Memory that a server shares

uint64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<uint64_t>(getpagesize());
}

TEST(LeftBehindTest, MemoryThatCannotBeSharedIsUnmapped) {
  Gated gated;
  TestServer server({.runtime = gated.runtime});
  EXPECT_THAT(server.server.Share(0).status(), HasCode(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(server.server.Share(size_t{1} << 60).status(), HasCode(absl::StatusCode::kResourceExhausted));
  gated.fabric->Refuse(true);
  const uint64_t mapped = MappedBytes();
  std::vector<uint8_t> own(kLarge);
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(server.server.Share(kLarge).ok());
    EXPECT_FALSE(server.server.Share(absl::MakeSpan(own)).ok());
  }
  EXPECT_LT(MappedBytes(), mapped + 10 * kLarge);
  gated.fabric->Refuse(false);
  EXPECT_THAT(server.server.Share(kLarge).status(), IsOk());
  EXPECT_THAT(server.server.Share(absl::MakeSpan(own)).status(), IsOk());
}

// Grants in a way that a test says.
class Granter final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    on_grant(context, reply.initTicket());
    return absl::OkStatus();
  }
  std::function<void(ServerContext&, memory::Ticket::Builder)> on_grant;
};

TEST(LeftBehindTest, AGrantThatIsRefusedWritesNoTicketAndTakesNoPlace) {
  constexpr uint64_t kBytes = 8192;
  constexpr uint64_t kTickets = 4096;  // Of one client.
  Gated gated;
  gated.fabric->Refuse(true);
  Granter granter;
  Server server({.runtime = gated.runtime}), other;
  ASSERT_THAT(server.AddService(&granter), IsOk());
  // Before Listen(), so that the first Grant() registers it.
  absl::StatusOr<SharedMemory> unregistered = server.Share(kLarge);
  ASSERT_THAT(unregistered.status(), IsOk());
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri.status(), IsOk());
  absl::StatusOr<SharedMemory> memory = server.Share(kBytes), of_another = other.Share(kBytes);
  ASSERT_TRUE(memory.ok() && of_another.ok());
  granter.on_grant = [&](ServerContext& context, memory::Ticket::Builder ticket) {
    const auto fill_in = [&] {
      ticket.setOwner(1);
      ticket.setRegion(2);
      ticket.setOffset(3);
      ticket.setLength(4);
      ticket.setAccess(5);
      ticket.setKeyLow(6);
      ticket.setKeyHigh(7);
    };
    fill_in();
    const auto expect_refused = [&](const SharedMemory& of, const GrantOptions& options,
                                    absl::StatusCode code) {
      ASSERT_THAT(context.Grant(of, options, ticket), HasCode(code));
      EXPECT_EQ(absl::StrCat(ticket.getOwner(), ticket.getRegion(), ticket.getOffset(), ticket.getLength(),
                             ticket.getAccess(), ticket.getKeyLow(), ticket.getKeyHigh()),
                "1234567");
    };
    // More often than a client has tickets, each for another part.
    for (uint64_t i = 0; i <= kTickets; ++i) {
      expect_refused(*memory, {.offset = i, .length = kBytes + 1}, absl::StatusCode::kOutOfRange);
      expect_refused(*memory, {.offset = i, .length = 0}, absl::StatusCode::kInvalidArgument);
      expect_refused(*memory, {.offset = i, .length = 8, .access = Access(8)},
                     absl::StatusCode::kInvalidArgument);
      expect_refused(*of_another, {.offset = i, .length = 8}, absl::StatusCode::kInvalidArgument);
      if (::testing::Test::HasFailure()) return;
      EXPECT_FALSE(context.Grant(*unregistered, {.offset = i, .length = 8}, ticket).ok());
    }
    for (uint64_t i = 0; i < kTickets; ++i) {
      ASSERT_THAT(context.Grant(*memory, {.offset = i, .length = 1}, ticket), IsOk()) << i;
    }
    fill_in();
    expect_refused(*memory, {.offset = kTickets, .length = 1}, absl::StatusCode::kResourceExhausted);
  };
  const auto channel = *Channel::Connect(*uri);
  EXPECT_THAT(memory_probe::MemoryProbeStub(channel).Grant({.timeout = kLong}).Send().Wait().status(),
              IsOk());
  EXPECT_THAT(server.Shutdown(absl::Now() + kLong), IsOk());
}

}  // namespace
}  // namespace hawser
