#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_TLS_FABRIC_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_TLS_FABRIC_H_

#include <memory>
#include <utility>

#include "hawser/base/check.h"
#include "hawser/tests/tls/certificates.h"
#include "hawser/tls/context.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::fabric {

// `real`, on which every connection has TLS, with one certificate for all.
class TlsFabric final : public Fabric {
 public:
  explicit TlsFabric(std::unique_ptr<Fabric> real) : real_(std::move(real)) {
    static const CertificateAuthority& authority = *new CertificateAuthority;
    static const TlsCredentials& credentials = *new TlsCredentials(authority.Issue());
    absl::StatusOr<std::shared_ptr<tls::Context>> context = tls::Context::Create(credentials, nullptr);
    HAWSER_CHECK(context.ok(), context.status().ToString());
    tls_ = *std::move(context);
  }

  absl::string_view scheme() const override { return real_->scheme(); }
  bool sends_can_wait() const override { return real_->sends_can_wait(); }
  size_t sge_max() const override { return real_->sge_max(); }
  Atomics atomics() const override { return real_->atomics(); }
  bool carries_tls() const override { return true; }
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(uint8_t* address, size_t length_bytes) override {
    return real_->Register(address, length_bytes);
  }
  absl::StatusOr<std::unique_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t depth) override {
    return real_->CreateCompletionQueue(depth);
  }
  absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(CompletionQueue& completion_queue,
                                                             const QueuePairOptions& options,
                                                             ConnectionHandler& handler) override {
    QueuePairOptions with_tls = options;
    with_tls.tls = tls_;
    with_tls.tls_host = "localhost";
    return real_->CreateQueuePair(completion_queue, with_tls, handler);
  }
  absl::StatusOr<std::unique_ptr<Listener>> Listen(CompletionQueue& completion_queue,
                                                   const SocketAddress& address, ListenHandler& handler,
                                                   const ListenOptions&) override {
    return real_->Listen(completion_queue, address, handler, {.tls = tls_});
  }

 private:
  const std::unique_ptr<Fabric> real_;
  std::shared_ptr<tls::Context> tls_;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_TLS_FABRIC_H_
