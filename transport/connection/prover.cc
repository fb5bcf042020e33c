#include "hawser/transport/connection/prover.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/connection/silent_connection.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// A connect over the fabric without TLS, which is rejected: the rejection names the port. Owned by `home_`.
class Prover::Asking final : public SilentConnection {
 public:
  explicit Asking(std::shared_ptr<Prover> prover)
      : SilentConnection(prover->home_), prover_(std::move(prover)) {}
  ~Asking() override {
    if (!ended()) prover_->asking_ = nullptr;
  }

  void Ask() {
    fabric::QueuePairOptions options;
    options.local_address = prover_->local_address_;
    const absl::Duration left = absl::Nanoseconds(prover_->asks_until_ns_ - poller().now_ns());
    if (absl::Status made = Create(left, options); !made.ok()) return Notify(made);
    // Without the session: what crosses here is not hidden.
    const absl::Status started =
        queue_pair().Connect(prover_->address_, Encode(Hello(ProofFor(prover_->role_))));
    if (!started.ok()) Notify(started);
  }

 private:
  void OnTimeout() override {
    Notify(absl::UnavailableError("the server did not say in time where it takes credentials"));
  }
  void OnEnd() override { prover_->asking_ = nullptr; }

  void Notify(const absl::StatusOr<uint16_t>& port) {
    if (ended()) return;
    const std::shared_ptr<Prover> prover = prover_;
    End();
    prover->OnPort(port);
  }
  void AskAgain() {
    if (ended()) return;
    const std::shared_ptr<Prover> prover = prover_;
    End();
    prover->Ask();
  }

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view) override {
    Notify(absl::UnauthenticatedError("the peer accepts what no server of ours does; is it one?"));
  }
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override {
    if (private_data.empty()) {
      if (prover_->MayAskAgain()) return AskAgain();
      return Notify(WithoutReason(why));
    }
    const absl::StatusOr<uint16_t> port = DecodeProofPort(private_data);
    if (!port.ok() || *port != 0) return Notify(port);
    // The dialed port is no substitute. The rejection is not authenticated: a program that names no port, and
    // passes TLS on to an older server, would get a proof that is not bound.
    const absl::Status reason = DecodeRejection(private_data);
    if (!absl::IsUnauthenticated(reason)) return Notify(reason);
    Notify(absl::UnauthenticatedError(absl::StrCat(
        absl::string_view(reason.message()),
        "; has the server credentials (ServerOptions::credentials), and is it of this version?")));
  }
  void OnDisconnected(const absl::Status& why) override { Notify(why); }

  const std::shared_ptr<Prover> prover_;
};

// The TLS connection. Owned by its poller.
class Prover::Dialing final : public SilentConnection {
 public:
  explicit Dialing(std::shared_ptr<Prover> prover)
      : SilentConnection(prover->poller_), prover_(std::move(prover)) {
    poller().AddAsyncInterest(1);  // Another thread waits for the result.
  }
  ~Dialing() override { poller().AddAsyncInterest(-1); }

  void Dial(absl::Duration timeout) {
    fabric::QueuePairOptions options;
    options.local_address = prover_->local_address_;
    options.tls = prover_->security_.tls;
    options.tls_host = prover_->security_.host;
    if (absl::Status made = Create(timeout, options); !made.ok()) return Fail(made);
    Handshake hello = Hello(ProofFor(prover_->role_));
    hello.session = prover_->session_;
    hello.features = kFeatureBoundProof;
    const absl::Status started = queue_pair().Connect(prover_->tls_address_, Encode(hello));
    if (!started.ok()) Fail(started);
  }

 private:
  void OnTimeout() override { Fail(absl::UnavailableError("no answer in time")); }
  void OnEnd() override { prover_->dialing_ = nullptr; }

  void Fail(const absl::Status& why) {
    if (ended()) return;
    const std::shared_ptr<Prover> prover = prover_;
    End();
    if (std::exchange(notified_, true)) return;
    prover->Notify(absl::Status(
        why.code(), absl::StrCat("credentials are shown by TLS over TCP, ", prover->DescribePlace(), ": ",
                                 absl::string_view(why.message()))));
  }

  // fabric::ConnectionHandler
  void OnEstablished(absl::string_view private_data) override {
    const absl::StatusOr<Handshake> answer = DecodeAccept(private_data, ProofFor(prover_->role_));
    if (!answer.ok()) return Fail(answer.status());
    absl::StatusOr<Proof> proof = ProofOf(queue_pair());
    if (!proof.ok()) return Fail(proof.status());
    if ((answer->features & kFeatureBoundProof) != 0) {
      proof->bound_to = Dialed{prover_->address_, prover_->tls_address_};
    } else if (prover_->asked_) {
      // The rejection that named the port is not authenticated. It may name the port of another server, for a
      // program that passes the proof on to that server.
      return Fail(absl::UnauthenticatedError(
          "what listens there binds no proof to where it was dialed, as each server that tells a port does"));
    }
    notified_ = true;
    prover_->Notify(Result{*proof, OrNotAuthenticated(queue_pair().peer_identity())});
  }
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override {
    if (!private_data.empty()) return Fail(DecodeRejection(private_data));
    if (!absl::IsUnavailable(why) && !absl::IsPermissionDenied(why)) return Fail(why);
    Fail(absl::UnavailableError(absl::StrCat(
        absl::string_view(why.message()),
        prover_->asked_ ? "; does a firewall let that port pass? ServerOptions::proof_ports fixes it"
                        : "; has the server credentials (ServerOptions::credentials)?")));
  }
  void OnDisconnected(const absl::Status& why) override { Fail(why); }

  const std::shared_ptr<Prover> prover_;
  bool notified_ = false;
};

Prover::Prover(Poller& home, const SocketAddress& address, const SocketAddress& local_address,
               const Handshake& hello, const Security& security, Client& client)
    : home_(home),
      poller_(security.prove_over->NextPoller()),
      address_(address),
      local_address_(local_address),
      role_(hello.role),
      session_(hello.session),
      tls_address_(address),
      security_(security),
      client_(&client) {}

void Prover::Start(absl::Duration timeout) {
  home_.AssertHeld();
  timeout_ = timeout;
  if (!home_.fabric().takes_ports_of_tcp()) {
    return poller_.Run([self = shared_from_this()] { self->Dial(); });
  }
  asked_ = true;
  asks_until_ns_ = After(home_.now_ns(), timeout);
  Ask();
}

void Prover::Ask() {
  if (client_ == nullptr) return;
  --asks_left_;
  auto asking = std::make_unique<Asking>(shared_from_this());
  asking_ = asking.get();
  Asking& asks = *asking;
  home_.Adopt(std::move(asking));
  asks.Ask();
}

void Prover::OnPort(absl::StatusOr<uint16_t> port) {
  if (client_ == nullptr) return;
  if (!port.ok()) {
    return client_->OnProof(
        absl::Status(port.status().code(),
                     absl::StrCat("where are credentials shown by TLS over TCP? ", address_.ToString(),
                                  " was asked: ", absl::string_view(port.status().message()))));
  }
  tls_address_.set_port(*port);
  poller_.Run([self = shared_from_this()] { self->Dial(); });
}

std::string Prover::DescribePlace() const {
  if (!asked_) return "at the same address and port";
  return absl::StrCat("at port ", tls_address_.port(), ", which the server at port ", address_.port(),
                      " has told");
}

void Prover::Abandon() {
  if (std::exchange(client_, nullptr) == nullptr) return;
  if (asking_ != nullptr) return asking_->End();  // There is no TLS connection yet.
  poller_.Run([self = shared_from_this()] {
    self->abandoned_ = true;
    if (self->dialing_ != nullptr) self->dialing_->End();
  });
}

void Prover::Dial() {
  if (abandoned_) return;
  auto dialing = std::make_unique<Dialing>(shared_from_this());
  dialing_ = dialing.get();
  Dialing& dials = *dialing;
  poller_.Adopt(std::move(dialing));
  dials.Dial(timeout_);
}

void Prover::Notify(absl::StatusOr<Result> result) {
  home_.Run([self = shared_from_this(), result = std::move(result)]() mutable {
    if (self->client_ != nullptr) self->client_->OnProof(std::move(result));
  });
}

}  // namespace hawser::transport
