#include "hawser/tests/observe/busy_snapshot.h"

#include "absl/strings/str_cat.h"
#include "hawser/observe/histogram.h"

namespace hawser::observe {
namespace {

class Filler {
 public:
  Filler(const BusyOptions& options, wire::Snapshot::Builder snapshot)
      : options_(options), snapshot_(snapshot) {}

  void Server() {
    snapshot_.setTakenUnixNs(options_.taken_unix_ns);
    auto process = snapshot_.initProcess();
    process.setName(Text("kv_server"));
    process.setPid(4711);
    process.setHost(Text("kv1"));
    auto server = snapshot_.initServer();
    server.setStartedUnixNs(options_.taken_unix_ns - 5'000'000'000);
    server.initAddresses(1).set(0, Text("tcp://10.0.0.1:7470"));
    server.setWhyNotRdma(Text("there is no device"));
    server.setConnectionsMax(65536);
    server.setConnectionsPerHostMax(16384);
    server.setConnectionsOpen(options_.connections);
    server.setCallsRunning(options_.calls);
    server.setCallsTotal(12345);
    server.initServices(1).set(0, Text("kv.capnp:KeyValue"));
  }

  void Methods() {
    auto methods = snapshot_.initMethods(options_.methods);
    for (unsigned i = 0; i < methods.size(); ++i) {
      methods[i].setName(Text(absl::StrCat("kv.capnp:KeyValue.method", i)));
      methods[i].setCalls(i);
      methods[i].setRunning(i % 2);
      methods[i].setRequestBytes(i * 1000);
      methods[i].setResponseBytes(i * 2000);
      if (i == 0) continue;
      auto statuses = methods[i].initStatuses(2);
      statuses[0].setName("OK");
      statuses[0].setCount(i - 1);
      statuses[1].setCode(4);
      statuses[1].setName("DEADLINE_EXCEEDED");
      statuses[1].setCount(1);
      auto latency = methods[i].initLatency();
      auto bounds = latency.initBoundsNs(Histogram::kBuckets);
      auto counts = latency.initCounts(Histogram::kBuckets);
      for (unsigned bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
        bounds.set(bucket, Histogram::BoundNs(bucket));
      }
      counts.set(10 + i % 50, i);
    }
  }

  void Connections() {
    auto connections = snapshot_.initConnections(options_.connections);
    for (unsigned i = 0; i < connections.size(); ++i) {
      connections[i].setPeer(Text(absl::StrCat("tcp://10.0.0.7:", 50000 + i)));
      connections[i].setIdentity(Text("spiffe://example.org/web"));
      connections[i].setFabric(Text("tcp"));
      connections[i].setState(Text("ready"));
      connections[i].setNumber(i + 1);
      connections[i].setSlots(32);
      connections[i].setSlotsInUse(i % 32);
      connections[i].setReceiveBytes(1 << 20);
      connections[i].setSinceUnixNs(options_.taken_unix_ns - 1'000'000'000);
    }
    auto total = snapshot_.initTotals(1)[0];
    total.setFabric(Text("tcp"));
    total.setState(Text("ready"));
    total.setCount(options_.connections);
    total.setSlots(64);
    total.setSlotsGiven(4);
    total.setSlotsWanted(8);
    total.setSlotsInUse(3);
    auto memory = snapshot_.initMemory();
    memory.setRegions(2);
    memory.setBytes(3 << 20);
    memory.setTickets(41);
    memory.setGrants(40);
    memory.setLanes(5);
    memory.setLanesOpened(6);
    auto refusal = snapshot_.initRefusals(1)[0];
    refusal.setReason(Text("no room"));
    refusal.setCount(3);
  }

  void Channels() {
    snapshot_.initTls().setResumed(7);
    auto channel = snapshot_.initChannels(1)[0];
    channel.setAddress(Text("tcp://kv2:7470"));
    channel.setState(Text("ready"));
    channel.setCallsWaiting(9);
    channel.initCounts().setConnects(5);
    auto remote = snapshot_.initRemoteOperations(1)[0];
    remote.setKind(Text("read"));
    auto ended = remote.initStatuses(1)[0];
    ended.setName(Text("OUT_OF_RANGE"));
    ended.setCount(17);
    snapshot_.initChannelTotals().setFailedAttempts(2);
  }

  void Calls() {
    Fill(snapshot_.initCalls(options_.calls));
    Fill(snapshot_.initSlowest(options_.calls));
    snapshot_.setCallsLeftOut(1);
  }

  void Pollers() {
    auto pollers = snapshot_.initPollers(options_.pollers);
    for (unsigned i = 0; i < pollers.size(); ++i) {
      pollers[i].setName(Text(absl::StrCat("tcp ", i)));
      pollers[i].setFabric(Text("tcp"));
      pollers[i].setMode(Text("adaptive"));
      pollers[i].setBusyNs(static_cast<uint64_t>(options_.taken_unix_ns) / (i + 2));
      pollers[i].setSleepNs(1000);
      pollers[i].setAnswered(i % 2 == 0);
      if (i % 2 == 1) pollers[i].setHeldBy(Text("the handler of kv.capnp:KeyValue.get, for 12 s"));
    }
    auto pool = snapshot_.initPools(1)[0];
    pool.setName(Text("tcp"));
    pool.setLimitBytes(uint64_t{4} << 30);
    pool.setRegisteredBytes(64 << 20);
    pool.setLeasedBytes(3 << 20);
    auto of = pool.initClasses(1)[0];
    of.setBufferBytes(4096);
    of.setBuffers(100);
    of.setLeased(60);
  }

  void Settings() {
    auto setting = snapshot_.initConfiguration(1)[0];
    setting.setName(Text("ServerOptions::connections_max"));
    setting.setValue(Text("65536"));
  }

 private:
  void Fill(capnp::List<wire::Call>::Builder calls) {
    for (unsigned i = 0; i < calls.size(); ++i) {
      calls[i].setId(Text("12:3.17"));
      calls[i].setMethod(Text("kv.capnp:KeyValue.get"));
      calls[i].setPeer(Text("tcp://10.0.0.7:50000"));
      calls[i].setIdentity(Text("spiffe://example.org/web"));
      calls[i].setStage(Text("running"));
      calls[i].setAgeNs(1'500'000'000);
      calls[i].setDeadlineInNs(i % 2 == 0 ? -1 : 500'000'000);
      calls[i].setQueuedNs(500'000'000);
      calls[i].setHandlerNs(900'000'000);
      calls[i].setDeferredNs(100'000'000);
      calls[i].setEndedUnixNs(options_.taken_unix_ns);
    }
  }

  // Valid until the next one; the snapshot copies it.
  kj::StringPtr Text(std::string text) {
    text_ = options_.text(std::move(text));
    return {text_.data(), text_.size()};
  }

  const BusyOptions& options_;
  wire::Snapshot::Builder snapshot_;
  std::string text_;
};

}  // namespace

void FillInBusy(const BusyOptions& options, wire::Snapshot::Builder snapshot) {
  Filler filler(options, snapshot);
  filler.Server();
  filler.Methods();
  filler.Connections();
  filler.Channels();
  filler.Calls();
  filler.Pollers();
  filler.Settings();
}

}  // namespace hawser::observe
