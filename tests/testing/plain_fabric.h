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
  size_t sge_max() const override { return tcp_->sge_max(); }
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
    return std::make_unique<PlainQueuePair>(*std::move(real));
  }
  absl::StatusOr<std::unique_ptr<fabric::Listener>> Listen(fabric::CompletionQueue& completion_queue,
                                                           const SocketAddress& address,
                                                           fabric::ListenHandler& handler,
                                                           const fabric::ListenOptions& options) override {
    auto real =
        tcp_->Listen(completion_queue, ports_ == Ports::kOwn ? Inside(address) : address, handler, options);
    if (!real.ok()) return real.status();
    return std::make_unique<PlainListener>(*std::move(real), address);
  }

 private:
  static SocketAddress Inside(const SocketAddress& address) {
    sockaddr_in in = *reinterpret_cast<const sockaddr_in*>(address.get());
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    return SocketAddress(reinterpret_cast<const sockaddr*>(&in), sizeof(in));
  }

  class PlainListener final : public fabric::Listener {
   public:
    PlainListener(std::unique_ptr<fabric::Listener> real, SocketAddress address)
        : real_(std::move(real)), address_(address) {
      address_.set_port(real_->address().port());
    }
    SocketAddress address() const override { return address_; }

   private:
    const std::unique_ptr<fabric::Listener> real_;
    SocketAddress address_;
  };

  class PlainQueuePair final : public fabric::QueuePair {
   public:
    explicit PlainQueuePair(std::unique_ptr<fabric::QueuePair> real) : real_(std::move(real)) {}
    uint32_t qp_num() const override { return real_->qp_num(); }
    uint32_t read_depth() const override { return real_->read_depth(); }
    SocketAddress peer_address() const override { return real_->peer_address(); }
    SocketAddress local_address() const override { return real_->local_address(); }
    absl::Status Connect(const SocketAddress& address, absl::string_view private_data) override {
      return real_->Connect(Inside(address), private_data);
    }
    absl::Status Accept(fabric::ConnectRequest& request, absl::string_view private_data) override {
      return real_->Accept(request, private_data);
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
  };

  const Ports ports_;
  const std::shared_ptr<fabric::Fabric> tcp_{fabric::CreateTcpFabric()};
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_PLAIN_FABRIC_H_
