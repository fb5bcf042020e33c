// What a server asks before a call runs. Whose identity it is asked about with TLS: tls_test.cc.

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "hawser/health.rpc.h"
#include "hawser/introspection.rpc.h"
#include "hawser/perf.rpc.h"
#include "hawser/reflection.rpc.h"
#include "hawser/rpc/interceptor.h"
#include "hawser/rpc/log.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/transport/fabrics.h"
#include "tests/rpc/driven.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

using Authorize = std::function<absl::Status(const ServerContext& context)>;

const Authorize kRefuse = [](const ServerContext&) { return absl::PermissionDeniedError("only on Sundays"); };

TEST(AuthorizeTest, ACallThatIsAllowedRuns) {
  std::atomic<int> asked = 0;
  TestServer server({.authorize = [&](const ServerContext& context) {
    ++asked;
    EXPECT_STREQ(context.method().name, probe::ProbeStub::kAct.name);
    EXPECT_THAT(context.peer_address(), HasSubstr("://"));
    return absl::OkStatus();
  }});
  const auto channel = server.Connect();
  for (uint64_t i = 0; i < 3; ++i) EXPECT_THAT(SendAct(channel, i).Wait(), IsOk());
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(server.probe.runs, 3);
}

TEST(AuthorizeTest, ACallThatIsRefusedDoesNotRunAndHearsTheReason) {
  TestServer server({.authorize = kRefuse});
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(status.message()), HasSubstr("only on Sundays"));
  EXPECT_FALSE(WasSent(status));
  EXPECT_EQ(server.probe.runs, 0);
}

TEST(AuthorizeTest, WithoutCredentialsNoIdentityIsAuthenticated) {
  TestServer server({.authorize = [](const ServerContext& context) {
    const PeerIdentity& identity = context.peer_identity();
    if (!identity.is_authenticated) return absl::UnauthenticatedError(identity.ToString());
    return absl::OkStatus();
  }});
  const auto channel = server.Connect();
  const absl::Status status = SendAct(channel, 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(std::string(status.message()), HasSubstr("not authenticated"));
  EXPECT_EQ(channel->peer_identity(), PeerIdentity());
}

TEST(AuthorizeTest, ItReadsTheMetadataOfTheRequest) {
  TestServer server({.authorize = [](const ServerContext& context) {
    return context.metadata().Get("tenant") == "blue" ? absl::OkStatus()
                                                      : absl::PermissionDeniedError("no such tenant");
  }});
  const auto channel = server.Connect();
  Metadata blue;
  blue.Add("tenant", "blue");
  EXPECT_THAT(SendAct(channel, 1, {.metadata = &blue}).Wait(), IsOk());
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kPermissionDenied));
}

TEST(AuthorizeTest, AnExceptionOfItIsInternalAndStaysHere) {
  Box<std::pair<LogSeverity, std::string>> lines;
  SetLogSink([&](LogSeverity severity, absl::string_view line) { lines.Put({severity, std::string(line)}); });
  TestServer server({.authorize = [](const ServerContext&) -> absl::Status {
    throw std::runtime_error("no row in /etc/callers");
  }});
  const absl::Status status = SendAct(server.Connect(), 1).Wait().status();
  EXPECT_THAT(status, HasCode(absl::StatusCode::kInternal));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ServerOptions::authorize"), Not(HasSubstr("/etc/callers"))));
  EXPECT_EQ(server.probe.runs, 0);
  EXPECT_THAT(lines.Take(), Pair(LogSeverity::kError, HasSubstr("no row in /etc/callers")));
  SetLogSink(nullptr);
}

// Sees how each call ends.
class Ends final : public Interceptor {
 public:
  absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning&) override {
    return std::make_unique<End>(*this);
  }
  Box<absl::Status> ends;

 private:
  struct End final : Call {
    explicit End(Ends& to) : all(to) {}
    void OnEnd(const absl::Status& status) override { all.ends.Put(status); }
    Ends& all;
  };
};

TEST(AuthorizeTest, InterceptorsSeeARefusal) {
  const auto ends = std::make_shared<Ends>();
  TestServer server({.authorize = kRefuse, .interceptors = {ends}});
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait(), Not(IsOk()));
  const absl::Status end = ends->ends.Take();
  EXPECT_THAT(end, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(end.message()), HasSubstr("only on Sundays"));
}

class Refusing final : public Interceptor {
 public:
  absl::StatusOr<std::unique_ptr<Call>> Begin(const Beginning&) override {
    return absl::UnavailableError("too many");
  }
};

TEST(AuthorizeTest, ItIsNotAskedAboutACallThatAnInterceptorRefused) {
  std::atomic<int> asked = 0;
  TestServer server({.authorize =
                         [&](const ServerContext&) {
                           ++asked;
                           return absl::OkStatus();
                         },
                     .interceptors = {std::make_shared<Refusing>()}});
  EXPECT_THAT(SendAct(server.Connect(), 1).Wait().status(), HasCode(absl::StatusCode::kUnavailable));
  EXPECT_EQ(asked, 0);
}

TEST(AuthorizeTest, ItRunsWhereTheHandlerDoes) {
  Box<absl::AnyInvocable<void()>> queue;
  Box<std::thread::id> asked, handled;
  ServerOptions options;
  options.executor = [&](absl::AnyInvocable<void()> handler) { queue.Put(std::move(handler)); };
  options.authorize = [&](const ServerContext&) {
    asked.Put(std::this_thread::get_id());
    return absl::OkStatus();
  };
  TestServer server(std::move(options));
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    handled.Put(std::this_thread::get_id());
    return absl::OkStatus();
  };
  auto call = SendAct(server.Connect(), 1);
  std::thread worker([&] { queue.Take()(); });
  const std::thread::id id = worker.get_id();
  EXPECT_THAT(call.Wait(), IsOk());
  worker.join();
  EXPECT_EQ(asked.Take(), id);
  EXPECT_EQ(handled.Take(), id);
}

TEST(AuthorizeTest, AHandlerThatItAllowsMayDefer) {
  std::atomic<bool> allowed = true;
  TestServer server({.authorize = [&](const ServerContext&) {
    return allowed ? absl::OkStatus() : absl::PermissionDeniedError("not any more");
  }});
  server.probe.on_act = server.held.Handler();
  const auto channel = server.Connect();
  auto first = SendAct(channel, 1);
  DeferredCall held = server.held.Take();
  allowed = false;
  EXPECT_THAT(SendAct(channel, 2).Wait().status(), HasCode(absl::StatusCode::kPermissionDenied));
  held.Finish();
  EXPECT_THAT(first.Wait(), IsOk());
}

class NoListener final : public probe::ListenerService {
  absl::Status Notify(ServerContext&, probe::Listener::NotifyParams::Reader,
                      probe::Listener::NotifyResults::Builder) override {
    return absl::OkStatus();
  }
};

TEST(AuthorizeTest, AnUnknownMethodTellsNotWhatThereIs) {
  for (const bool authorizes : {false, true}) {
    std::atomic<int> asked = 0;
    ServerOptions options;
    if (authorizes) {
      options.authorize = [&](const ServerContext&) {
        ++asked;
        return absl::OkStatus();
      };
    }
    TestServer server(std::move(options));
    const absl::Status status = probe::UnservedStub(server.Connect()).Call().Send().Wait().status();
    EXPECT_THAT(status, HasCode(absl::StatusCode::kUnimplemented));
    EXPECT_THAT(std::string(status.message()), HasSubstr("Unserved.call"));
    if (authorizes) {
      EXPECT_THAT(std::string(status.message()), Not(HasSubstr("Probe")));
    } else {
      EXPECT_THAT(std::string(status.message()), HasSubstr("Probe"));
    }
    EXPECT_EQ(asked, 0);
  }
}

TEST(AuthorizeTest, ItIsNotAskedAboutCallsToAClient) {
  TestServer server({.authorize = [](const ServerContext& context) {
    return context.method().interface_id == probe::ProbeStub::kAct.interface_id
               ? absl::OkStatus()
               : absl::PermissionDeniedError("asked about another service");
  }});
  NoListener listener;
  const auto channel = server.Connect({.services = {&listener}});
  EXPECT_THAT(probe::ListenerStub(WayBack(server, channel)).Notify({.timeout = kLong}).Send().Wait(), IsOk());
}

TEST(AuthorizeTest, TheBuiltInServicesAreToldApart) {
  for (const Method& method :
       {health::HealthStub::kCheck, health::HealthStub::kWatch, health::HealthWatcherStub::kChanged,
        introspection::IntrospectionStub::kSnapshot, perf::PerfStub::kLimits,
        reflection::ReflectionStub::kList}) {
    EXPECT_TRUE(IsBuiltIn(method)) << method.name;
  }
  EXPECT_FALSE(IsBuiltIn(probe::ProbeStub::kAct));
  std::atomic<int> built_in = 0;
  TestServer server({.authorize = [&](const ServerContext& context) {
    if (!IsBuiltIn(context.method())) return absl::PermissionDeniedError("only on Sundays");
    ++built_in;
    return absl::OkStatus();
  }});
  const auto channel = server.Connect();
  EXPECT_THAT(health::HealthStub(channel).Check().Send().Wait(), IsOk());
  EXPECT_THAT(reflection::ReflectionStub(channel).List().Send().Wait(), IsOk());
  EXPECT_EQ(built_in, 2);
  EXPECT_THAT(SendAct(channel, 1).Wait().status(), HasCode(absl::StatusCode::kPermissionDenied));
}

// The client's probe of the silent session gets an answer, which says that the server lives.
TEST(AuthorizeTest, AProbeOfARefusedClientNamesNoMethod) {
  ClockedRuntime clients(*transport::CreateFabric("tcp"));
  ServerOptions options;
  options.pollers = 1;
  options.authorize = [](const ServerContext& context) {
    return context.metadata().Get("tenant") == "blue" ? absl::OkStatus() : absl::PermissionDeniedError("no");
  };
  TestServer server(std::move(options), "tcp://127.0.0.1:0");
  Box<bool> holds, go;
  server.probe.on_act = [&](ServerContext&, uint64_t) {
    holds.Put(true);
    go.Take();
    return absl::OkStatus();
  };
  const auto blue = server.Connect();
  Metadata metadata;
  metadata.Add("tenant", "blue");
  const auto refused = server.Connect({.runtime = clients.get()});
  auto held = SendAct(blue, 1, {.timeout = kLong, .metadata = &metadata});
  holds.Take();
  auto call = probe::UnservedStub(refused).Call({.timeout = kLong}).Send();
  clients.PassBesideABusyServer(kLong, 1);
  const absl::Status late = call.Wait().status();
  EXPECT_THAT(late, HasCode(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(std::string(late.message()), ::testing::HasSubstr("by a handler"));
  EXPECT_THAT(std::string(late.message()), ::testing::Not(::testing::HasSubstr("Probe.act")));
  go.Put(true);
  EXPECT_THAT(held.Wait(), IsOk());
}

}  // namespace
}  // namespace hawser
