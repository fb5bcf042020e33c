// Cap'n Proto's own RPC over one TCP connection each (two-party), with one event loop a side, on Hawser's
// benchmark schema. TwoPartyServer and TwoPartyClient are taken apart here: they have no way to raise the
// limit of a message above 64 MiB.
#include <capnp/message.h>
#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>
#include <stdio.h>
#include <string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/bench.capnp.h"
#include "hawser/bench/peers/peer.h"

namespace hawser::bench::peers {
namespace {

using capnp::rpc::twoparty::Side;

constexpr capnp::ReaderOptions kNoLimit = {.traversalLimitInWords = uint64_t{1} << 40};

// Words that a message needs beside its payload, pointers and RPC envelope included.
constexpr uint64_t kEnvelopeWords = 32;

capnp::MessageSize SizeFor(size_t bytes) { return {bytes / sizeof(capnp::word) + kEnvelopeWords, 0}; }

// kj destroys an object as what it was made as, so what capnp generates has no virtual destructor.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
class TargetServer final : public Target::Server {
 public:
  // The payload is copied into the reply: Cap'n Proto has no way to keep the request until the reply is
  // written.
  kj::Promise<void> echo(EchoContext context) override {
    const capnp::Data::Reader payload = context.getParams().getPayload();
    context.getResults(SizeFor(payload.size())).setPayload(payload);
    return kj::READY_NOW;
  }

  kj::Promise<void> put(PutContext context) override {
    const capnp::Data::Reader payload = context.getParams().getPayload();
    if (payload.size() == 0 || payload[payload.size() - 1] != 'p') Die("the server got a wrong payload");
    context.initResults(SizeFor(0));
    return kj::READY_NOW;
  }
};

#pragma GCC diagnostic pop

class ServerConnection {
 public:
  ServerConnection(kj::Own<kj::AsyncIoStream> stream, capnp::Capability::Client target)
      : stream_(kj::mv(stream)),
        network_(*stream_, Side::SERVER, kNoLimit),
        rpc_(capnp::makeRpcServer(network_, kj::mv(target))) {}

  kj::Promise<void> UntilClosed() { return network_.onDisconnect(); }

 private:
  kj::Own<kj::AsyncIoStream> stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc_;
};

kj::Promise<void> Accept(kj::ConnectionReceiver& listener, capnp::Capability::Client target) {
  return listener.accept().then([&listener, target](kj::Own<kj::AsyncIoStream>&& stream) mutable {
    auto connection = kj::heap<ServerConnection>(kj::mv(stream), target);
    auto closed = connection->UntilClosed();
    closed.attach(kj::mv(connection)).detach([](kj::Exception&&) {});
    return Accept(listener, kj::mv(target));
  });
}

class ClientConnection {
 public:
  explicit ClientConnection(kj::Own<kj::AsyncIoStream> stream)
      : stream_(kj::mv(stream)),
        network_(*stream_, Side::CLIENT, kNoLimit),
        rpc_(capnp::makeRpcClient(network_)) {}

  Target::Client target() {
    capnp::MallocMessageBuilder message(4);
    auto server = message.initRoot<capnp::rpc::twoparty::VatId>();
    server.setSide(Side::SERVER);
    return rpc_.bootstrap(server).castAs<Target>();
  }

 private:
  kj::Own<kj::AsyncIoStream> stream_;
  capnp::TwoPartyVatNetwork network_;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc_;
};

class CapnpClient final : public Client {
 public:
  CapnpClient(const std::string& address, const Load& load, Observer& observer)
      : load_(load), observer_(observer), io_(kj::setupAsyncIo()), memory_(MakeMemory(load.bytes)) {
    auto server = io_.provider->getNetwork().parseAddress(address.c_str()).wait(io_.waitScope);
    for (int i = 0; i < load.connections; ++i) {
      connections_.push_back(kj::heap<ClientConnection>(server->connect().wait(io_.waitScope)));
      targets_.push_back(connections_.back()->target());
      targets_.back().whenResolved().wait(io_.waitScope);
    }
  }

  ~CapnpClient() noexcept override = default;

  void Send(int call) override {
    Target::Client& target = targets_[static_cast<size_t>(load_.ConnectionOf(call))];
    if (load_.method == Method::kPut) {
      Exchange(call, target.putRequest(SizeFor(0)), [](auto&) {});
    } else {
      Exchange(call, target.echoRequest(SizeFor(load_.bytes >= kLargeBytes ? 0 : load_.bytes)),
               [this](auto& reply) {
                 const capnp::Data::Reader payload = reply.getPayload();
                 CheckEcho(load_, payload.begin(), payload.size());
               });
    }
  }

  void Run() override {
    auto ended = kj::newPromiseAndFulfiller<void>();
    ended_ = kj::mv(ended.fulfiller);
    ended.promise.wait(io_.waitScope);
  }

 private:
  // Data of another owner has to fill whole words.
  static kj::Array<capnp::word> MakeMemory(size_t bytes) {
    auto memory = kj::heapArray<capnp::word>(bytes / sizeof(capnp::word) + 1);
    memcpy(memory.begin(), MakePayload(bytes).data(), bytes);
    return memory;
  }

  capnp::Data::Reader payload() const { return {memory_.asBytes().begin(), load_.bytes}; }

  template <typename Params, typename Results, typename Check>
  void Exchange(int call, capnp::Request<Params, Results> request, Check check) {
    if (load_.bytes >= kLargeBytes) {
      request.adoptPayload(
          capnp::Orphanage::getForMessageContaining<typename Params::Builder>(request).referenceExternalData(
              payload()));
    } else {
      request.setPayload(payload());
    }
    request.send()
        .then([this, call, check](auto&& reply) {
          check(reply);
          if (!observer_.OnReply(call)) ended_->fulfill();
        })
        .detach([](kj::Exception&& error) { Die(error.getDescription().cStr()); });
  }

  const Load load_;
  Observer& observer_;
  kj::AsyncIoContext io_;
  kj::Array<capnp::word> memory_;  // Holds the payload.
  std::vector<kj::Own<ClientConnection>> connections_;
  std::vector<Target::Client> targets_;
  kj::Own<kj::PromiseFulfiller<void>> ended_;
};

class CapnpRpc final : public Peer {
 public:
  const char* name() const override { return "capnp_rpc"; }
  size_t bytes_max() const override { return (512 << 20) - 1; }  // The limit of a Data.

  void Serve() override {
    KeepFreedPages();
    kj::AsyncIoContext io = kj::setupAsyncIo();
    auto listener = io.provider->getNetwork().parseAddress("127.0.0.1").wait(io.waitScope)->listen();
    printf("127.0.0.1:%u\n", listener->getPort());
    fflush(stdout);
    Accept(*listener, kj::heap<TargetServer>()).wait(io.waitScope);
  }

  std::unique_ptr<Client> Connect(const std::string& address, const Load& load, Observer& observer) override {
    KeepFreedPages();
    return std::make_unique<CapnpClient>(address, load, observer);
  }
};

}  // namespace
}  // namespace hawser::bench::peers

int main(int argc, char** argv) {
  hawser::bench::peers::CapnpRpc peer;
  return hawser::bench::peers::Main(argc, argv, peer);
}
