#ifndef HAWSER_TESTS_TESTING_PLAIN_FABRIC_H_
#define HAWSER_TESTS_TESTING_PLAIN_FABRIC_H_

#include <netinet/in.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/fabric.h"

namespace hawser {

// Looks like RDMA to what is above: rdma://, without TLS, with ports of its own. It is TCP at 127.0.0.2,
// called 127.0.0.1. So connections are proved by TLS over the real TCP at 127.0.0.1, without an RDMA device,
// and with threads.
class PlainFabric final : public fabric::Fabric {
 public:
  // kOfTcp: as iWARP, which takes its ports from TCP. It is TCP at 127.0.0.1 then.
  enum class Ports : uint8_t { kOwn, kOfTcp };
  explicit PlainFabric(Ports ports = Ports::kOwn) : ports_(ports) {}

  absl::string_view scheme() const override { return "rdma"; }
  bool sends_can_wait() const override { return false; }
  bool takes_ports_of_tcp() const override { return ports_ == Ports::kOfTcp; }
  size_t sge_max() const override { return tcp_->sge_max(); }
  fabric::Atomics atomics() const override { return tcp_->atomics(); }
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> Register(uint8_t* address,
                                                                 size_t length_bytes) override {
    return tcp_->Register(address, length_bytes);
  }
  absl::StatusOr<std::unique_ptr<fabric::CompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return tcp_->CreateCompletionQueue(depth);
  }
  absl::StatusOr<std::unique_ptr<fabric::QueuePair>> CreateQueuePair(
      fabric::CompletionQueue& completion_queue, const fabric::QueuePairOptions& options,
      fabric::ConnectionHandler& handler) override {
    auto real = tcp_->CreateQueuePair(completion_queue, options, handler);
    if (!real.ok()) return real.status();
    return std::make_unique<PlainQueuePair>(*std::move(real), ports_);
  }
  absl::StatusOr<std::unique_ptr<fabric::Listener>> Listen(fabric::CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           fabric::ListenHandler& handler,
                                                           const fabric::ListenOptions& options) override {
    auto listener = std::make_unique<PlainListener>(address, ports_, handler);
    auto real = tcp_->Listen(completion_queue, Inside(address, ports_), *listener, options);
    if (!real.ok()) return real.status();
    listener->Own(*std::move(real));
    return listener;
  }

 private:
  static SocketAddress With(const SocketAddress& address, uint32_t host) {
    sockaddr_in in = *reinterpret_cast<const sockaddr_in*>(address.get());
    in.sin_addr.s_addr = htonl(host);
    return SocketAddress(reinterpret_cast<const sockaddr*>(&in), sizeof(in));
  }
  static SocketAddress Inside(const SocketAddress& address, Ports ports) {
    return ports == Ports::kOwn ? With(address, INADDR_LOOPBACK + 1) : address;
  }

  // Where the peer has dialed is called 127.0.0.1.
  class PlainRequest final : public fabric::ConnectRequest {
   public:
    explicit PlainRequest(std::unique_ptr<fabric::ConnectRequest> real) : real_(std::move(real)) {}
    fabric::ConnectRequest& real() { return *real_; }
    absl::string_view private_data() const override { return real_->private_data(); }
    SocketAddress peer_address() const override { return real_->peer_address(); }
    SocketAddress local_address() const override { return With(real_->local_address(), INADDR_LOOPBACK); }
    uint32_t read_depth() const override { return real_->read_depth(); }
    void Reject(absl::string_view private_data) override { real_->Reject(private_data); }

   private:
    const std::unique_ptr<fabric::ConnectRequest> real_;
  };

  class PlainListener final : public fabric::Listener, public fabric::ListenHandler {
   public:
    PlainListener(const SocketAddress& address, Ports ports, fabric::ListenHandler& handler)
        : address_(address), ports_(ports), handler_(handler) {}
    void Own(std::unique_ptr<fabric::Listener> real) {
      real_ = std::move(real);
      address_.set_port(real_->address().port());
    }
    SocketAddress address() const override { return address_; }

   private:
    void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override {
      handler_.OnConnectRequest(ports_ == Ports::kOwn ? std::make_unique<PlainRequest>(std::move(request))
                                                      : std::move(request));
    }
    void OnBadPeer(const SocketAddress& peer, const absl::Status& why) override {
      handler_.OnBadPeer(peer, why);
    }

    SocketAddress address_;
    const Ports ports_;
    fabric::ListenHandler& handler_;
    std::unique_ptr<fabric::Listener> real_;
  };

  class PlainQueuePair final : public fabric::QueuePair {
   public:
    PlainQueuePair(std::unique_ptr<fabric::QueuePair> real, Ports ports)
        : real_(std::move(real)), ports_(ports) {}
    uint32_t qp_num() const override { return real_->qp_num(); }
    bool takes_atomics() const override { return real_->takes_atomics(); }
    uint32_t read_depth() const override { return real_->read_depth(); }
    SocketAddress peer_address() const override { return real_->peer_address(); }
    SocketAddress local_address() const override { return real_->local_address(); }
    absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override {
      return real_->Connect(Inside(address, ports_), private_data);
    }
    absl::Status Accept(fabric::ConnectRequest& request, absl::string_view private_data) override {
      auto* const plain = dynamic_cast<PlainRequest*>(&request);
      return real_->Accept(plain == nullptr ? request : plain->real(), private_data);
    }
    bool PeerSharesCore() const override { return real_->PeerSharesCore(); }
    absl::Status PostSend(absl::Span<const fabric::SendWorkRequest> requests) override {
      return real_->PostSend(requests);
    }
    absl::Status PostReceive(absl::Span<const fabric::ReceiveWorkRequest> requests) override {
      return real_->PostReceive(requests);
    }
    absl::StatusOr<fabric::Granted> Grant(const fabric::Sge& range, Access access) override {
      return real_->Grant(range, access);
    }
    void Revoke(uint32_t rkey, uint64_t wr_id) override { real_->Revoke(rkey, wr_id); }
    void OpenSink(uint8_t* address, uint64_t length_bytes) override {
      real_->OpenSink(address, length_bytes);
    }
    bool CloseSink(const uint8_t* address) override { return real_->CloseSink(address); }
    void Disconnect() override { real_->Disconnect(); }

   private:
    const std::unique_ptr<fabric::QueuePair> real_;
    const Ports ports_;
  };

  const Ports ports_;
  const std::shared_ptr<fabric::Fabric> tcp_{fabric::CreateTcpFabric()};
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_PLAIN_FABRIC_H_
