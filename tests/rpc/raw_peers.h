#ifndef HAWSER_TESTS_RPC_RAW_PEERS_H_
#define HAWSER_TESTS_RPC_RAW_PEERS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/rpc/wire/background.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/proof.h"
#include "tests/rpc/probe.h"

// Peers of transport/fabric only, which say what a test likes when they connect, or are connected to.
namespace hawser {

// One end of a connection without messages: dials, or accepts.
// Thread:   any; it waits for its poller, the first of `runtime`.
// Lifetime: disconnects when it is destroyed.
class RawEnd {
 public:
  // Dials `address`, and waits until it is accepted or rejected.
  RawEnd(std::shared_ptr<transport::Runtime> runtime, const SocketAddress& address,
         const std::string& connect, const fabric::QueuePairOptions& options = {})
      : RawEnd(std::move(runtime)) {
    internal::RunAndWait(poller(), [&] {
      client_->Make(options);
      const absl::Status started = client_->queue_pair->Connect(address, connect);
      if (!started.ok()) client_->OnDisconnected(started);
    });
    result_ = client_->results.Take();
  }
  // Accepts, on the poller.
  RawEnd(std::shared_ptr<transport::Runtime> runtime, fabric::ConnectRequest& request,
         const std::string& accept)
      : RawEnd(std::move(runtime)) {
    client_->Make({});
    EXPECT_TRUE(client_->queue_pair->Accept(request, accept).ok());
  }
  ~RawEnd() {
    internal::RunAndWait(poller(), [this] {
      client_->Disconnect();
      poller().MarkClosed(client_);
    });
  }
  RawEnd(const RawEnd&) = delete;

  // Of a side that dials. What the peer has accepted or rejected with.
  bool accepted() const { return result_.why.ok(); }
  const std::string& data() const { return result_.data; }
  // As a client gets it.
  absl::Status rejection() const { return transport::DecodeRejection(result_.data); }
  // Of its TLS.
  transport::Proof proof() {
    absl::StatusOr<transport::Proof> proof = absl::InternalError("did not run");
    internal::RunAndWait(poller(), [&] { proof = transport::ProofOf(*client_->queue_pair); });
    return *proof;
  }

 private:
  struct Result {
    absl::Status why;
    std::string data;
  };
  // Lives until RawEnd ends.
  struct Client final : transport::PollerClient, fabric::ConnectionHandler {
    explicit Client(transport::Poller& its_poller) : poller(its_poller) {}
    void Make(const fabric::QueuePairOptions& options) {
      queue_pair = *poller.fabric().CreateQueuePair(poller.completion_queue(), options, *this);
    }
    void OnCompletion(const transport::WorkId&, const fabric::Completion&) override {}
    void Flush() override {}
    void FlushIfLong() override {}
    void Disconnect() override {
      if (queue_pair != nullptr) queue_pair->Disconnect();
    }
    void OnEstablished(absl::string_view data) override { Notify({absl::OkStatus(), std::string(data)}); }
    void OnConnectFailed(const absl::Status& why, absl::string_view data) override {
      Notify({why, std::string(data)});
    }
    void OnDisconnected(const absl::Status& why) override { Notify({why, ""}); }
    void Notify(Result result) {
      if (!std::exchange(told, true)) results.Put(std::move(result));
    }

    transport::Poller& poller;
    Box<Result> results;
    bool told = false;
    std::unique_ptr<fabric::QueuePair> queue_pair;
  };

  explicit RawEnd(std::shared_ptr<transport::Runtime> runtime) : runtime_(std::move(runtime)) {
    auto owned = std::make_unique<Client>(poller());
    client_ = owned.get();
    internal::RunAndWait(poller(), [&] { poller().Adopt(std::move(owned)); });
  }
  transport::Poller& poller() { return runtime_->poller(0); }

  const std::shared_ptr<transport::Runtime> runtime_;
  Client* client_;
  Result result_;
};

// Listens, and gives each request to `on_request`, on the first poller of `runtime`.
class RawListener final : fabric::ListenHandler {
 public:
  using OnRequest = std::function<void(std::unique_ptr<fabric::ConnectRequest> request)>;
  RawListener(std::shared_ptr<transport::Runtime> runtime, const SocketAddress& address, OnRequest on_request,
              const fabric::ListenOptions& options = {})
      : runtime_(std::move(runtime)), on_request_(std::move(on_request)) {
    internal::RunAndWait(poller(), [&] {
      fabric::ListenHandler& handler = *this;
      listener_ = *poller().fabric().Listen(poller().completion_queue(), address, handler, options);
    });
  }
  ~RawListener() {
    internal::RunAndWait(poller(), [this] { listener_.reset(); });
  }
  RawListener(const RawListener&) = delete;

  SocketAddress address() const { return listener_->address(); }

 private:
  transport::Poller& poller() { return runtime_->poller(0); }
  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override {
    on_request_(std::move(request));
  }

  const std::shared_ptr<transport::Runtime> runtime_;
  const OnRequest on_request_;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_RAW_PEERS_H_
