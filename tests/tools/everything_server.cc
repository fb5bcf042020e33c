// A server of tests/tools/everything.capnp. Its reflection and health services are the test's own: with
// --lie=truth it is honest, and answers in pieces; with --lie=silent there is none; with --lie=snapshots it
// is what it is doing that it lies about; with --lie=clock its snapshots have the same time always, or that
// of another start each time with --lie=starts; with others it lies.

#include <capnp/any.h>
#include <capnp/message.h>
#include <capnp/schema-loader.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "examples/arguments.h"
#include "examples/stop_signal.h"
#include "examples/tls_flags.h"
#include "hawser/health.rpc.h"
#include "hawser/introspection.rpc.h"
#include "hawser/reflection.rpc.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "tests/tools/everything.rpc.h"

namespace {

using capnp::schema::Node;
using hawser::everything::Everything;
using hawser::reflection::Reflection;

class EverythingImpl : public hawser::everything::EverythingService {
 public:
  absl::Status Hello(hawser::ServerContext& context, hawser::everything::Base::HelloParams::Reader request,
                     hawser::everything::Base::HelloResults::Builder reply) override {
    std::string text = std::string("hello ") + request.getName().cStr();
    for (const auto pair : context.metadata())
      text += " " + std::string(pair.key) + "=" + std::string(pair.value);
    reply.setText(text);
    return absl::OkStatus();
  }
  absl::Status Echo(hawser::ServerContext&, Everything::EchoParams::Reader request,
                    Everything::EchoResults::Builder reply) override {
    reply.setAll(request.getAll());
    return absl::OkStatus();
  }
  absl::Status Fail(hawser::ServerContext&, Everything::FailParams::Reader request,
                    Everything::FailResults::Builder) override {
    const auto text = request.getText();
    return absl::Status(static_cast<absl::StatusCode>(request.getCode()), {text.begin(), text.size()});
  }
  absl::Status Nothing(hawser::ServerContext&, Everything::NothingParams::Reader,
                       Everything::NothingResults::Builder) override {
    return absl::OkStatus();
  }
  absl::Status Named(hawser::ServerContext&, Everything::Params::Reader request,
                     Everything::Params::Builder reply) override {
    reply.setText(request.getText());
    reply.setPicture(request.getPicture());
    reply.getInner().setBytes(request.getInner().getBytes());
    reply.getInner().setName(request.getInner().getName());
    reply.setSize(request.getPicture().size());
    return absl::OkStatus();
  }
  // Until the server ends.
  absl::Status Sleep(hawser::ServerContext& context, Everything::SleepParams::Reader,
                     Everything::SleepResults::Builder) override {
    sleeping_.push_back(context.Defer());
    return absl::OkStatus();
  }
  absl::Status Hello2(hawser::ServerContext&, Everything::Hello2Params::Reader,
                      Everything::Hello2Results::Builder) override {
    return absl::OkStatus();
  }

 private:
  std::vector<hawser::DeferredCall> sleeping_;
};

using hawser::health::Health;
using hawser::health::ServingStatus;

// Tells a watcher that it serves, then that it does not. Knows "known", and the server; the first watch of
// "later" gets Unavailable.
class HealthImpl : public hawser::health::HealthService {
 public:
  absl::Status Check(hawser::ServerContext&, Health::CheckParams::Reader request,
                     Health::CheckResults::Builder reply) override {
    if (request.getService() == "down") {
      reply.setStatus(ServingStatus::NOT_SERVING);
      return absl::OkStatus();
    }
    reply.setStatus(ServingStatus::SERVING);
    return request.getService() == "" ? absl::OkStatus() : absl::NotFoundError("unknown");
  }
  absl::Status Watch(hawser::ServerContext& context, Health::WatchParams::Reader request,
                     Health::WatchResults::Builder) override {
    if (request.getService() == "later" && !was_asked_.exchange(true)) {
      return absl::UnavailableError("not yet");
    }
    const auto peer = context.peer();
    if (peer == nullptr) return absl::FailedPreconditionError("the client offers no service");
    Notify(peer, ServingStatus::SERVING, [peer] { Notify(peer, ServingStatus::NOT_SERVING, [] {}); });
    return absl::OkStatus();
  }

 private:
  static void Notify(const std::shared_ptr<hawser::Channel>& peer, ServingStatus status,
                     std::function<void()> then) {
    auto call = hawser::health::HealthWatcherStub(peer).Changed();
    call.request().setStatus(status);
    call.Send().Then([then = std::move(then)](auto reply) {
      if (reply.ok()) then();
    });
  }

  std::atomic<bool> was_asked_ = false;
};

// Tells of names that a terminal would obey, and of figures and times that cannot be.
class EvilSnapshots : public hawser::introspection::IntrospectionService {
  using Introspection = hawser::introspection::Introspection;

 public:
  explicit EvilSnapshots(std::string lie) : lie_(std::move(lie)) {}
  static bool Tells(const std::string& lie) {
    return lie == "snapshots" || lie == "clock" || lie == "starts";
  }

  absl::Status Snapshot(hawser::ServerContext&, Introspection::SnapshotParams::Reader,
                        Introspection::SnapshotResults::Builder reply) override {
    Fill(reply.initSnapshot());
    return absl::OkStatus();
  }

 private:
  void Fill(hawser::observe::wire::Snapshot::Builder snapshot) {
    static constexpr char kText[] = "\x1b]0;title\x07\x1b[2J\r\n\u202e";
    const int64_t number = ++asked_;
    snapshot.setTakenUnixNs(lie_ == "clock" ? 1 : number);
    snapshot.initProcess().setName(kText);
    snapshot.getProcess().setHost(kText);
    auto server = snapshot.initServer();
    server.setStartedUnixNs(lie_ == "starts" ? number : INT64_MIN);
    server.setState(static_cast<hawser::observe::wire::Server::State>(77));
    server.initAddresses(1).set(0, kText);
    server.initServices(1).set(0, kText);
    for (auto method : snapshot.initMethods(1000)) {
      method.setName(kText);
      method.setCalls(UINT64_MAX);
      method.initLatency().initCounts(7).set(6, UINT64_MAX);
    }
    for (auto call : snapshot.initCalls(2000)) {
      call.setPeer(kText);
      call.setIdentity(kText);
      call.setAgeNs(INT64_MIN);
    }
    auto poller = snapshot.initPollers(1)[0];
    poller.setName(kText);
    poller.setHeldBy(kText);
    poller.setBusyNs(UINT64_MAX);
    snapshot.initRefusals(1)[0].setReason(kText);
    snapshot.getRefusals()[0].setCount(1);
  }

  const std::string lie_;
  std::atomic<int64_t> asked_{0};
};

constexpr uint64_t kEvil = 0x8000000000000001;

// Sends what a lie calls for: an interface "evil.capnp:Evil" and a struct beside it.
class Liar : public hawser::reflection::ReflectionService {
 public:
  explicit Liar(std::string lie) : lie_(std::move(lie)) {}

  absl::Status List(hawser::ServerContext&, Reflection::ListParams::Reader,
                    Reflection::ListResults::Builder reply) override {
    if (lie_ == "truth") return Truth(reply);
    auto service = reply.initServices(1)[0];
    service.setName("evil.capnp:Evil\x1b[2J");
    service.setInterfaceId(kEvil);
    service.setHasSchema(lie_ != "by hand");
    if (lie_ == "methods") return Methods(reply);
    if (lie_ == "services" || lie_ == "trickle") return Services(reply);
    service.initMethods(1)[0].setName("m\x1b]0;title\x07");
    return absl::OkStatus();
  }

  absl::Status Schema(hawser::ServerContext&, Reflection::SchemaParams::Reader request,
                      Reflection::SchemaResults::Builder reply) override {
    if (lie_ == "truth") return Truth(request.getSkip(), reply);
    if (lie_ == "endless") {
      reply.setTotal(4'000'000'000);
      return One(reply);
    }
    if (lie_ == "trickle") {  // As many calls as a client takes, and little in each answer.
      reply.setTotal(15'000);
      return One(reply);
    }
    if (lie_ == "none") {
      reply.setTotal(1);
      return absl::OkStatus();
    }
    auto nodes = reply.initNodes(2);
    reply.setTotal(2);
    Interface(nodes[0]);
    Struct(nodes[1]);
    return absl::OkStatus();
  }

 private:
  // Very many methods, of no size. The limit on reading a message is 16 times its size: the long name, which
  // costs the server nothing to send again and again, is there for that.
  static absl::Status Methods(Reflection::ListResults::Builder reply) {
    constexpr uint32_t kNameBytes = 3 << 20;
    auto services = reply.initServices(2);
    services[0].setName("evil.capnp:Evil");
    capnp::toAny(services[0])
        .getPointerSection()[1]
        .initAsListOfAnyStruct(0, 0, 15 * kNameBytes / sizeof(capnp::word));
    services[1].setName(std::string(kNameBytes, 'x'));
    return absl::OkStatus();
  }

  absl::Status Services(Reflection::ListResults::Builder reply) const {
    auto services = reply.initServices(lie_ == "trickle" ? 10'000 : 10'001);
    for (uint32_t i = 0; i < services.size(); ++i) {
      services[i].setInterfaceId(kEvil + i);
      services[i].setHasSchema(true);
    }
    return absl::OkStatus();
  }

  static absl::Status Truth(Reflection::ListResults::Builder reply) {
    const capnp::InterfaceSchema interfaces[] = {capnp::Schema::from<hawser::everything::Base>(),
                                                 capnp::Schema::from<Everything>()};
    const char* const names[] = {"everything.capnp:Base", "everything.capnp:Everything"};
    auto services = reply.initServices(2);
    for (uint32_t i = 0; i < 2; ++i) {
      services[i].setName(names[i]);
      services[i].setInterfaceId(interfaces[i].getProto().getId());
      services[i].setHasSchema(true);
      const auto methods = interfaces[i].getMethods();
      auto infos = services[i].initMethods(methods.size());
      for (uint32_t m = 0; m < methods.size(); ++m) {
        infos[m].setName(methods[m].getProto().getName());
        infos[m].setOrdinal(static_cast<uint16_t>(m));
        infos[m].setIdempotent(methods[m].getProto().getAnnotations().size() > 0);
      }
    }
    return absl::OkStatus();
  }

  // Three at a time, so that a client has to ask again.
  static absl::Status Truth(uint32_t skip, Reflection::SchemaResults::Builder reply) {
    const auto loader = std::make_unique<capnp::SchemaLoader>();
    loader->loadCompiledTypeAndDependencies<Everything>();
    const auto all = loader->getAllLoaded();
    reply.setTotal(static_cast<uint32_t>(all.size()));
    const uint32_t count = std::min<uint32_t>(
        3, static_cast<uint32_t>(all.size()) - std::min<uint32_t>(skip, static_cast<uint32_t>(all.size())));
    auto nodes = reply.initNodes(count);
    for (uint32_t i = 0; i < count; ++i) nodes.setWithCaveats(i, all[skip + i].getProto());
    return absl::OkStatus();
  }

  static absl::Status One(Reflection::SchemaResults::Builder reply) {
    auto node = reply.initNodes(1)[0];
    node.setId(kEvil);
    node.setDisplayName("evil.capnp:Evil");
    return absl::OkStatus();
  }

  void Interface(Node::Builder node) {
    node.setId(kEvil);
    node.setDisplayName(lie_ == "names" ? "evil.capnp:Evil\x1b[2J" : "evil.capnp:Evil");
    node.setDisplayNamePrefixLength(lie_ == "prefix" ? 0xffffffff : 11);
    auto method = node.initInterface().initMethods(1)[0];
    method.setName("m");
    method.setParamStructType(kEvil + 1);
    method.setResultStructType(kEvil + 1);
    if (lie_ == "superclass") node.getInterface().initSuperclasses(1)[0].setId(kEvil);
  }

  void Struct(Node::Builder node) {
    node.setId(lie_ == "missing" ? kEvil + 2 : kEvil + 1);
    node.setDisplayName("evil.capnp:Struct");
    node.setDisplayNamePrefixLength(11);
    node.initStruct();
    if (lie_ == "scope") node.setScopeId(node.getId());
    if (lie_ == "group") {
      auto field = node.getStruct().initFields(1)[0];
      field.setName("g");
      field.initGroup().setTypeId(node.getId());
    }
    if (lie_ == "offset") {  // 64 * (offset + 1) is 0 in 32 bits.
      auto field = node.getStruct().initFields(1)[0];
      field.setName("f");
      field.initSlot().setOffset(0x3ffffff);
      field.getSlot().initType().setUint64();
      field.getSlot().initDefaultValue().setUint64(0);
    }
    if (lie_ == "field") {
      auto field = node.getStruct().initFields(1)[0];
      field.setName("f");
      field.initSlot().setOffset(77777);
      field.getSlot().initType().setText();
      field.getSlot().initDefaultValue().setText("");
    }
  }

  const std::string lie_;
};

}  // namespace

int main(int argc, char** argv) {
  examples::StopSignal stop;
  std::string uri = "tcp://127.0.0.1:0";
  std::string lie;
  examples::FlagSet flags;
  bool no_introspection = false;
  flags.Text("listen", &uri).Text("lie", &lie).Switch("no_introspection", &no_introspection);
  examples::TlsFlags tls;
  tls.AddTo(flags);
  if (absl::Status status = flags.Apply(examples::CommandLine::Split({argv + 1, argv + argc}));
      !status.ok()) {
    std::cerr << status << std::endl;
    return 2;
  }
  // The server, which is destroyed first, uses them.
  EverythingImpl everything;
  Liar liar(lie);
  EvilSnapshots snapshots(lie);
  HealthImpl health;
  hawser::ServerOptions options;
  options.reflection = options.health = false;
  if (no_introspection) options.introspection = hawser::Introspection::kNever;
  options.handler_grace = absl::ZeroDuration();
  if (const auto credentials = tls.Credentials(); credentials.ok()) options.credentials = *credentials;
  hawser::Server server(options);
  absl::Status status = server.AddService(&everything);
  const bool tells_snapshots = EvilSnapshots::Tells(lie);
  if (status.ok() && !lie.empty() && lie != "silent" && !tells_snapshots) status = server.AddService(&liar);
  if (status.ok() && tells_snapshots) status = server.AddService(&snapshots);
  if (status.ok() && lie == "truth") status = server.AddService(&health);
  if (status.ok()) status = server.Listen(uri).status();
  if (!status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  for (const std::string& address : server.addresses()) std::cout << "listening on " << address << std::endl;
  stop.Wait();
  server.Shutdown(absl::Now()).IgnoreError();
  return 0;
}
