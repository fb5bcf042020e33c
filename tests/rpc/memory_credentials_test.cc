// One-sided operations where both sides have credentials: over TCP with TLS, and over RDMA with the proof. On
// a machine without an RDMA device over what looks like one (PlainFabric).

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/plain_fabric.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/transport/lane/lane.h"
#include "hawser/transport/runtime.h"
#include "tests/rpc/credentials_probe.h"
#include "tests/rpc/dialed_lane.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/probe.h"

namespace hawser {
namespace {

using ::testing::HasSubstr;
using transport::Lane;

class MemoryProbeImpl final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    return context.Grant(*memory, {.access = Access::kReadWrite}, reply.initTicket());
  }
  std::optional<SharedMemory> memory;
};

enum class Way { kTls, kProof };

class MemoryCredentialsTest : public ::testing::TestWithParam<Way> {
 protected:
  static bool proves() { return GetParam() == Way::kProof; }
  // Null: the default one of the URI.
  static std::shared_ptr<Runtime> NewRuntime() {
    if (!proves() || TestScheme() == "rdma") return nullptr;
    return *Runtime::CreateOn(std::make_shared<PlainFabric>(), {}, /*start_threads=*/true);
  }
  static std::string AnyPort() {
    return proves() ? absl::StrCat("rdma://", TestHost(), ":0") : std::string("tcp://127.0.0.1:0");
  }

  MemoryCredentialsTest() : server_(AsServer()) {
    EXPECT_THAT(server_.AddService(&memory_), IsOk());
    EXPECT_THAT(server_.AddService(&probe_), IsOk());
    uri_ = server_.Listen(AnyPort()).value();
    absl::StatusOr<SharedMemory> shared = server_.Share(65536);
    EXPECT_THAT(shared.status(), IsOk());
    memory_.memory = *std::move(shared);
  }

  TlsCredentials Credentials(const std::string& dns) const {
    CertificateNames names = LoopbackNames();
    names.dns = {dns};
    names.ips.push_back(TestHost());
    return authority_.Issue(names);
  }
  ServerOptions AsServer() const {
    ServerOptions options;
    options.runtime = runtime_;
    options.credentials = Credentials("server.example.org");
    return options;
  }
  std::shared_ptr<Channel> Connect(const std::string& dns = "client.example.org") {
    ChannelOptions options;
    options.runtime = runtime_;
    options.credentials = Credentials(dns);
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri_, std::move(options));
    EXPECT_THAT(channel.status(), IsOk());
    return *channel;
  }
  RemoteMemory Reach(const std::shared_ptr<Channel>& channel) {
    const auto reply = memory_probe::MemoryProbeStub(channel).Grant(kPatient).Send().Wait();
    EXPECT_THAT(reply.status(), IsOk());
    return RemoteMemory(channel, (*reply)->getTicket());
  }
  std::shared_ptr<Runtime> ClientRuntime() const {
    return runtime_ != nullptr ? runtime_ : *Runtime::Default(proves() ? "rdma" : "tcp");
  }
  absl::Status Dial(const Lane::Target& target) const { return DialedLane(ClientRuntime(), target).status(); }

  const CertificateAuthority authority_;
  const std::shared_ptr<Runtime> runtime_ = NewRuntime();
  MemoryProbeImpl memory_;
  ProbeServiceImpl probe_;
  Server server_;
  std::string uri_;
};

TEST_P(MemoryCredentialsTest, MemoryIsReachedUntilItIsRevoked) {
  const auto channel = Connect();
  RemoteMemory remote = Reach(channel);
  const absl::StatusOr<Buffer> buffer = channel->AllocateBuffer(65536);
  ASSERT_THAT(buffer.status(), IsOk());
  for (size_t i = 0; i < 65536; ++i) buffer->data()[i] = static_cast<uint8_t>(i * 7 + i / 256);
  const std::string written(reinterpret_cast<const char*>(buffer->data()), 65536);
  EXPECT_THAT(remote.Write(0, {buffer->data(), 65536}).Wait(), IsOk());
  // Over iWARP it is there once this has ended.
  std::string bytes(65536, '\0');
  EXPECT_THAT(remote.Read(0, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}).Wait(), IsOk());
  EXPECT_TRUE(bytes == written);
  EXPECT_TRUE(std::string(reinterpret_cast<const char*>(memory_.memory->data()), 65536) == written);
  EXPECT_EQ(server_.stats().connections, 2u);
  EXPECT_THAT(memory_.memory->Revoke(), IsOk());
  EXPECT_THAT(remote.Read(0, {buffer->data(), 8}).Wait(), HasCode(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
}

TEST_P(MemoryCredentialsTest, ALaneWithoutCredentialsIsRefused) {
  const auto channel = Connect();
  Lane::Target target = TargetOf(*channel);
  target.security = {};
  const absl::Status status = Dial(target);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("credentials"));
  EXPECT_THAT(SendAct(channel, 1).Wait(), IsOk());
}

TEST_P(MemoryCredentialsTest, ALaneOfAnotherIdentityThanItsSessionIsRefused) {
  const auto channel = Connect("a.example.org"), other = Connect("b.example.org");
  Lane::Target stolen = TargetOf(*other);
  stolen.session = TargetOf(*channel).session;
  const absl::Status status = Dial(stolen);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Text(status), HasSubstr("certificate"));
  EXPECT_THAT(Dial(TargetOf(*channel)), IsOk());
}

TEST_P(MemoryCredentialsTest, ALaneToAnotherServerThanTheChannelsIsNotUsed) {
  const auto channel = Connect();
  Lane::Target target = TargetOf(*channel);
  PeerIdentity another = *target.peer;
  another.dns_names = {"another.example.org"};
  target.peer = std::make_shared<const PeerIdentity>(std::move(another));
  const absl::Status status = Dial(target);
  EXPECT_THAT(status, HasCode(absl::StatusCode::kUnauthenticated));
  EXPECT_THAT(Text(status), HasSubstr("another server than the channel"));
  target.peer = nullptr;  // A channel that does not know whom it has reached.
  EXPECT_THAT(Dial(target), HasCode(absl::StatusCode::kUnauthenticated));
}

// The session is looked for with the proof, or behind TLS, and a number that was guessed gives nothing.
TEST_P(MemoryCredentialsTest, ALaneOfASessionThatThereIsNotIsRefused) {
  const auto channel = Connect();
  Lane::Target target = TargetOf(*channel);
  target.session[0] ^= 1;
  EXPECT_THAT(Dial(target), HasCode(absl::StatusCode::kNotFound));
}

std::string NameOf(const ::testing::TestParamInfo<Way>& way) {
  return way.param == Way::kTls ? "Tls" : "Proof";
}
INSTANTIATE_TEST_SUITE_P(Ways, MemoryCredentialsTest, ::testing::Values(Way::kTls, Way::kProof), NameOf);

}  // namespace
}  // namespace hawser
