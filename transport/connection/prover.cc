#include "hawser/transport/connection/prover.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/poller/poller_client.h"
#include "hawser/transport/wire/options.h"

namespace hawser::transport {

// The TLS connection. Owned by its poller.
class Prover::Dialing final : public PollerClient, public fabric::ConnectionHandler {
 public:
  explicit Dialing(std::shared_ptr<Prover> prover)
      : prover_(std::move(prover)),
        poller_(prover_->poller_),
        timer_([this] { Fail(absl::UnavailableError("no answer in time")); }) {
    poller_.AddAsyncInterest(1);  // Another thread waits for the result.
  }
  ~Dialing() override {
    poller_.timers().Cancel(timer_);
    poller_.AddAsyncInterest(-1);
  }

  void Dial(absl::Duration timeout) {
    const Security& security = prover_->security_;
    fabric::QueuePairOptions options = {.send_depth = 1, .receive_depth = 1, .read_depth = 1};
    options.local_address = prover_->local_address_;
    options.tls = security.tls;
    options.tls_host = security.host;
    absl::StatusOr<std::unique_ptr<fabric::QueuePair>> queue_pair =
        poller_.fabric().CreateQueuePair(poller_.completion_queue(), options, *this);
    if (!queue_pair.ok()) return Fail(queue_pair.status());
    queue_pair_ = *std::move(queue_pair);
    Handshake hello;
    hello.role = ProofFor(prover_->role_);
    hello.session = prover_->session_;
    hello.slots = 1;
    hello.receive_buffer_bytes = kReceiveBufferMin;
    poller_.timers().Set(timer_, After(poller_.environment().NowNs(), timeout));
    const absl::Status started = queue_pair_->Connect(prover_->address_, Encode(hello));
    if (!started.ok()) Fail(started);
  }

  void End() {
    if (std::exchange(ended_, true)) return;
    prover_->dialing_ = nullptr;
    poller_.timers().Cancel(timer_);
    Disconnect();
    poller_.MarkClosed(this);
  }

 private:
  void Fail(const absl::Status& why) {
    if (ended_) return;
    const std::shared_ptr<Prover> prover = prover_;
    End();
    if (std::exchange(notified_, true)) return;
    prover->Notify(absl::Status(
        why.code(), absl::StrCat("credentials are shown by TLS over TCP, at the same address and port: ",
                                 absl::string_view(why.message()))));
  }

  // PollerClient
  void OnCompletion(const WorkId&, const fabric::Completion&) override {}
  void Flush() override {}
  void FlushIfLong() override {}
  void Disconnect() override {
    if (queue_pair_ != nullptr) queue_pair_->Disconnect();
  }

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view private_data) override {
    const absl::StatusOr<Handshake> answer = DecodeAccept(private_data, ProofFor(prover_->role_));
    if (!answer.ok()) return Fail(answer.status());
    const absl::StatusOr<Proof> proof = ProofOf(*queue_pair_);
    if (!proof.ok()) return Fail(proof.status());
    notified_ = true;
    prover_->Notify(Result{*proof, OrNotAuthenticated(queue_pair_->peer_identity())});
  }
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override {
    if (!private_data.empty()) return Fail(DecodeRejection(private_data));
    if (!absl::IsUnavailable(why) && !absl::IsPermissionDenied(why)) return Fail(why);
    Fail(absl::UnavailableError(absl::StrCat(absl::string_view(why.message()),
                                             "; has the server credentials (ServerOptions::credentials)?")));
  }
  void OnDisconnected(const absl::Status& why) override { Fail(why); }

  const std::shared_ptr<Prover> prover_;
  Poller& poller_;
  bool notified_ = false;
  bool ended_ = false;
  Timer timer_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
};

Prover::Prover(Poller& home, const SocketAddress& address, const SocketAddress& local_address,
               const Handshake& hello, const Security& security, Client& client)
    : home_(home),
      poller_(security.prove_over->NextPoller()),
      address_(address),
      local_address_(local_address),
      role_(hello.role),
      session_(hello.session),
      security_(security),
      client_(&client) {}

void Prover::Start(absl::Duration timeout) {
  home_.AssertHeld();
  poller_.Run([self = shared_from_this(), timeout] { self->Dial(timeout); });
}

void Prover::Abandon() {
  if (std::exchange(client_, nullptr) == nullptr) return;
  poller_.Run([self = shared_from_this()] {
    self->abandoned_ = true;
    if (self->dialing_ != nullptr) self->dialing_->End();
  });
}

void Prover::Dial(absl::Duration timeout) {
  if (abandoned_) return;
  auto dialing = std::make_unique<Dialing>(shared_from_this());
  dialing_ = dialing.get();
  Dialing& dials = *dialing;
  poller_.Adopt(std::move(dialing));
  dials.Dial(timeout);
}

void Prover::Notify(absl::StatusOr<Result> result) {
  home_.Run([self = shared_from_this(), result = std::move(result)]() mutable {
    if (self->client_ != nullptr) self->client_->OnProof(std::move(result));
  });
}

}  // namespace hawser::transport
