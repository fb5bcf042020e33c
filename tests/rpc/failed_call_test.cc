// A function of the API that fails leaves nothing behind: no method, no listener, no memory, no thread, no
// text. What the program does next works as if it had not called.

#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/probe.h"
#include "tests/rpc/taken.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The number of threads of this process. One that has been joined may be among them for a moment.
ptrdiff_t Threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads));
}

class OtherServiceImpl final : public probe::UnservedService {
  absl::Status Call(ServerContext&, probe::Unserved::CallParams::Reader,
                    probe::Unserved::CallResults::Builder) override {
    return absl::OkStatus();
  }
};

absl::Status CallUnserved(const std::shared_ptr<Channel>& channel) {
  return probe::UnservedStub(channel).Call().Send().Wait().status();
}

// Two interfaces, one of which another service implements.
class MixedService final : public Service {
 public:
  void AddMethods(MethodTable& table) override {
    other_.AddMethods(table);
    probe_.AddMethods(table);
  }

 private:
  OtherServiceImpl other_;
  ProbeServiceImpl probe_;
};

TEST(FailedCallTest, AddServiceAddsNoneOfItsMethods) {
  ProbeServiceImpl probe;
  Server server;
  ASSERT_THAT(server.AddService(&probe), IsOk());
  {
    MixedService mixed;
    EXPECT_THAT(server.AddService(&mixed), HasCode(absl::StatusCode::kAlreadyExists));
  }
  OtherServiceImpl other;
  EXPECT_THAT(server.AddService(&other), IsOk()) << "it fails for what another one did";
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri, IsOk());
  const auto channel = *Channel::Connect(*uri);
  EXPECT_THAT(CallUnserved(channel), IsOk());
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_EQ(probe.runs, 1);
}

TEST(FailedCallTest, AddServiceLeavesNoName) {
  ProbeServiceImpl probe;
  Server server;
  ASSERT_THAT(server.AddService(&probe), IsOk());
  {
    MixedService mixed;
    EXPECT_THAT(server.AddService(&mixed), Not(IsOk()));
  }
  const auto channel = *Channel::Connect(*server.Listen(TestUri()));
  const absl::Status status = CallUnserved(channel);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
  EXPECT_THAT(std::string(status.message()), HasSubstr("it implements: probe.capnp:Probe."));
}

TEST(FailedCallTest, AServiceThatThrowsWhileItIsAddedAddsNothing) {
  class Throws final : public Service {
    void AddMethods(MethodTable& table) override {
      probe_.AddMethods(table);
      throw std::runtime_error("on purpose");
    }
    ProbeServiceImpl probe_;
  } throws;
  ProbeServiceImpl probe;
  Server server;
  EXPECT_THROW(server.AddService(&throws).IgnoreError(), std::runtime_error);
  EXPECT_THAT(server.AddService(&probe), IsOk());
}

void ExpectNothingOf(Server& server) {
  EXPECT_THAT(server.addresses(), IsEmpty());
  EXPECT_THAT(server.status_url(), IsEmpty());
  EXPECT_EQ(server.stats().leased_bytes, 0u);
  Taken taken(server);
  EXPECT_EQ(taken.Get().getPools().size(), 0u);
}

TEST(FailedCallTest, ListenLeavesNothingAndCanBeRepeated) {
  std::thread([] {}).join();  // ThreadSanitizer starts a thread of its own with the program's first thread.
  TestServer other;           // Has the port.
  ProbeServiceImpl probe;
  OtherServiceImpl late;
  Server server({.status_address = "127.0.0.1:0"});
  ASSERT_THAT(server.AddService(&probe), IsOk());
  EXPECT_THAT(server.Listen(other.uri).status(), HasCode(absl::StatusCode::kAlreadyExists));
  // Some that the process keeps have started, the log's for example.
  const ptrdiff_t threads = Threads();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(server.Listen(other.uri).status(), HasCode(absl::StatusCode::kAlreadyExists));
    ExpectNothingOf(server);
    EXPECT_TRUE(Eventually([&] { return Threads() <= threads; })) << Threads() << " of " << threads;
  }
  EXPECT_THAT(server.AddService(&late), IsOk());
  const absl::StatusOr<std::string> uri = server.Listen(TestUri());
  ASSERT_THAT(uri, IsOk());
  EXPECT_THAT(server.status_url(), Not(IsEmpty()));
  const auto channel = *Channel::Connect(*uri);
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_THAT(CallUnserved(channel), IsOk());
}

TEST(FailedCallTest, ListenWithoutItsStatusPortTakesNoOtherPort) {
  Server first({.status_address = "127.0.0.1:0"});
  const std::string uri = *first.Listen(TestUri());
  const std::string taken = first.status_url().substr(std::string("http://").size());
  Server second({.status_address = taken});
  EXPECT_THAT(second.Listen(TestUri()).status(), HasCode(absl::StatusCode::kAlreadyExists));
  ExpectNothingOf(second);
  ProbeServiceImpl probe;
  EXPECT_THAT(second.AddService(&probe), IsOk());
  ASSERT_THAT(first.Shutdown(absl::Now() + kLong), IsOk());
}

TEST(FailedCallTest, ListenWithoutItsCredentialsTakesNoPort) {
  Server server(
      {.credentials = TlsCredentials{
           .certificate = "/nowhere/a.pem", .key = "/nowhere/a.key", .authorities = "/nowhere/ca.pem"}});
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(server.Listen(TestUri()).status(), HasCode(absl::StatusCode::kInvalidArgument));
    ExpectNothingOf(server);
  }
}

TEST(FailedCallTest, AFurtherListenTakesNothingFromTheFirst) {
  TestServer other;
  TestServer server({.status_address = "127.0.0.1:0"});
  const auto channel = server.Connect();
  const std::string status_url = server.server.status_url();
  EXPECT_THAT(server.server.Listen(other.uri).status(), HasCode(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(server.server.addresses().size(), 1u);
  EXPECT_EQ(server.server.status_url(), status_url);
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), IsOk());
}

TEST(FailedCallTest, AllocateBufferMakesNoPool) {
  std::thread([] {}).join();
  Server server({.pool = {.limit_bytes = 16 << 20}});
  EXPECT_THAT(server.AllocateBuffer(1 << 30, TestUri()).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  const ptrdiff_t threads = Threads();
  EXPECT_THAT(server.AllocateBuffer(1 << 30, TestUri()).status(),
              HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_TRUE(Eventually([&] { return Threads() <= threads; })) << Threads() << " of " << threads;
  ExpectNothingOf(server);
  EXPECT_THAT(server.AllocateBuffer(100, TestUri()), IsOk());
}

TEST(FailedCallTest, AChannelThatIsNotMadeKeepsNothing) {
  const std::shared_ptr<transport::Runtime> runtime =
      *transport::Runtime::CreateOn(NewTestFabric(), {}, /*start_threads=*/true);
  ProbeServiceImpl one, two;
  const auto with = [&](auto set) {
    ChannelOptions options;
    options.runtime = runtime;
    set(options);
    return options;
  };
  const std::string uri = TestUri(1);  // Nothing listens there.
  const ChannelOptions wrong[] = {
      with([&](ChannelOptions& options) {
        options.services = {&one, &two};
      }),
      with([](ChannelOptions& options) { options.services = {nullptr}; }),
      with([](ChannelOptions& options) { options.interceptors = {nullptr}; }),
      with([](ChannelOptions& options) { options.connection.slots = 0; }),
  };
  for (const ChannelOptions& options : wrong) {
    const auto uses = runtime.use_count();
    EXPECT_THAT(Channel::Create(uri, options).status(), Not(IsOk()));
    EXPECT_EQ(runtime.use_count(), uses);
  }
  const auto uses = runtime.use_count();
  EXPECT_THAT(Channel::Connect(uri, with([](ChannelOptions&) {})).status(),
              HasCode(absl::StatusCode::kUnavailable));
  EXPECT_TRUE(Eventually([&] { return runtime.use_count() == uses; }));
}

}  // namespace
}  // namespace hawser
