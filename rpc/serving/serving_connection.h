#ifndef HAWSER_RPC_SERVING_SERVING_CONNECTION_H_
#define HAWSER_RPC_SERVING_SERVING_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/serving/error_sender.h"
#include "hawser/rpc/serving/method_counts.h"
#include "hawser/rpc/serving/method_finder.h"
#include "hawser/rpc/serving/serving.h"
#include "hawser/rpc/serving/serving_owner.h"
#include "hawser/rpc/wire/envelope.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/clock/timer.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/peer_request.h"
#include "hawser/transport/poller/poller.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"

namespace hawser {
class Channel;
}

namespace hawser::internal {

class ServerCall;

// A connection whose requests this process answers: a client's connection at a server, or the reverse
// connection at a client.
// Thread:   on the poller.
// Lifetime: its owner keeps it until OnServingEnded(): the connection is closed, and every handler has
//           answered.
class ServingConnection final : transport::ConnectionObserver, transport::RequestHandler {
 public:
  using Owner = ServingOwner;

  // `poller` is of `runtime`. `counters` and `owner` outlive this.
  ServingConnection(std::shared_ptr<transport::Runtime> runtime, transport::Poller& poller,
                    std::shared_ptr<const Serving> serving, ServingCounters& counters, Owner& owner);
  ~ServingConnection();
  ServingConnection(const ServingConnection&) = delete;
  ServingConnection& operator=(const ServingConnection&) = delete;

  // Call one of these, once. Not OK: it did not start, and the owner is not called.
  absl::Status Dial(const SocketAddress& address, const transport::ConnectionOptions& options,
                    const transport::Handshake& hello, absl::Duration connect_timeout,
                    const transport::Security& security);
  absl::Status Accept(transport::PeerRequest request, const transport::ConnectionOptions& options,
                      const transport::SessionToken& session);

  // Refuses new requests, and closes after the running ones have ended.
  void Drain();
  void Close(const absl::Status& why);
  // See transport::Connection::ExpectEnd().
  void ExpectEnd() {
    if (connection_ != nullptr) connection_->ExpectEnd();
  }
  // See transport::Connection::PeerIsBusy().
  void PeerIsBusy(absl::string_view how) {
    if (connection_ != nullptr) connection_->PeerIsBusy(how);
  }

  // See transport::Connection::has_unpolled().
  bool has_unpolled() const { return connection_ != nullptr && connection_->has_unpolled(); }

  // ---- For its calls.
  transport::Poller& poller() { return poller_; }
  const std::shared_ptr<transport::Runtime>& runtime() const { return runtime_; }
  const Serving& serving() const { return *serving_; }
  ServingCounters& counters() { return counters_; }
  const std::string& peer_address() const { return peer_address_; }
  uint64_t number() const { return number_; }  // Connection::number(); 0 until it is dialed or accepted.
  // From OnServingReady() on, also after the connection has ended.
  const PeerIdentity& peer_identity() const { return *peer_identity_; }
  std::shared_ptr<Channel> peer() const { return owner_.peer(); }
  Owner& owner() const { return owner_; }
  // Sends the answer of `call`: its reply if `status` is OK, else an error. Call it once for each call. Sends
  // nothing if the connection has answered in its place.
  void Answer(ServerCall& call, const absl::Status& status);
  // Nothing uses `call` any more. May destroy this.
  void Recycle(ServerCall& call);
  // Calls call.RunOnCancel() in the next turn of the thread that drives; `call` is not recycled before.
  void RunOnCancelSoon(ServerCall& call);

 private:
  friend class ConnectionReporter;

  // transport::ConnectionObserver
  void OnReady(const transport::Handshake& peer) override;
  void OnLost(const absl::Status& why) override { owner_.OnServingLost(why); }
  void OnPeerSilent(absl::Duration left) override { owner_.OnServingPeerSilent(left); }
  void OnFirstMessage() override;
  void OnClosed(const absl::Status& why) override;

  // transport::RequestHandler
  void OnRequest(transport::ExchangeId id, transport::IncomingMessagePtr request,
                 int64_t deadline_ns) override;
  void OnBadRequest(transport::ExchangeId id, const absl::Status& why) override;
  void OnRefusedByDrain(transport::ExchangeId id) override;
  void OnCancel(transport::ExchangeId id, const absl::Status& why) override;
  uint32_t answers_behind_peer() const override { return errors_.behind_peer(); }

  // Answers in the place of a handler whose caller has stopped waiting, which frees the slot. The handler
  // keeps the request, whose memory still counts against the host (HeldByHost). The call counts in
  // abandoned_calls_ until Recycle().
  void AnswerFor(ServerCall& call, const absl::Status& why);
  std::string IdentityText() const;  // Empty: not authenticated.
  // `call` ends for its caller: with a reply of `response_bytes`, or an error.
  void CountEnd(ServerCall& call, int64_t now_ns, uint64_t response_bytes);
  [[gnu::noinline, gnu::cold]] void CountFailure(ServerCall& call, absl::StatusCode code);
  // Before handler_end_ns says that `call` has ended.
  [[gnu::noinline, gnu::cold]] void NoteSlow(const ServerCall& call, absl::StatusCode code, int64_t now_ns);
  absl::Status Open(absl::StatusOr<transport::Connection*> connection,
                    const transport::ConnectionOptions& options);
  // Starts the call, or refuses it.
  [[gnu::noinline]] void OnRequestOf(const RequestEnvelope& envelope, transport::ExchangeId id,
                                     transport::IncomingMessagePtr&& request, int64_t deadline_ns,
                                     bool is_traced);
  // Gives `call`, which is the first that is free, the request.
  void Give(ServerCall& call, const ServedMethod& served, transport::ExchangeId id,
            transport::IncomingMessagePtr& request, int64_t deadline_ns);
  // Sends the reply of `call`, and counts its end. If it cannot be sent, an error takes its place.
  void SendReply(ServerCall& call);
  // Recycles `call`, which is not abandoned. May destroy this.
  void PutBack(ServerCall& call);
  // A request whose envelope the short way does not decode, because it has metadata, or is malformed.
  [[gnu::noinline, gnu::cold]] void OnOtherRequest(transport::ExchangeId id,
                                                   transport::IncomingMessagePtr request,
                                                   int64_t deadline_ns);
  [[gnu::noinline, gnu::cold]] void RefuseDraining(transport::ExchangeId id);
  [[gnu::noinline, gnu::cold]] void RefuseUnimplemented(const RequestEnvelope& envelope,
                                                        transport::ExchangeId id);
  // True: it was refused, because too many handlers still run after their calls have ended.
  [[gnu::noinline, gnu::cold]] bool RefuseBesideAbandoned(transport::ExchangeId id);
  [[gnu::noinline, gnu::cold]] ServerCall* NewCall();
  // Not OK: nothing was sent. Sets `code` if the reply was built wrong; leaves it if it exceeds a limit of
  // either side.
  absl::Status SendReplyOf(ServerCall& call, absl::StatusCode& code);
  [[gnu::noinline, gnu::cold]] absl::Status SendUnusualReply(ServerCall& call, absl::StatusCode& code);
  // The handler failed, or its reply cannot be sent.
  [[gnu::noinline, gnu::cold]] void AnswerWithError(ServerCall& call, const absl::Status& status);
  [[gnu::noinline, gnu::cold]] void AnswerUnsendable(ServerCall& call, absl::StatusCode code,
                                                     const absl::Status& why);
  void CheckGone();
  void OnCancelTimer();

  const std::shared_ptr<transport::Runtime> runtime_;
  transport::Poller& poller_;
  const std::shared_ptr<const Serving> serving_;
  ServingCounters& counters_;
  Owner& owner_;
  transport::Connection* connection_ = nullptr;  // Null once it is closed.
  std::string peer_address_;
  std::shared_ptr<const PeerIdentity> peer_identity_;  // Not null once it is dialed or accepted.
  const bool runs_handlers_plainly_;                   // On the poller, with nothing around them.
  bool draining_ = false;
  MethodFinder finder_;
  ErrorSender errors_;
  std::vector<ServerCall*> by_slot_;                // Not answered yet.
  std::vector<std::unique_ptr<ServerCall>> calls_;  // As many as ever ran at once.
  ServerCall* free_ = nullptr;                      // Those of them that serve no request: a list.
  size_t busy_ = 0;                                 // The others.
  uint64_t number_ = 0;                             // Connection::number().
  uint64_t requests_ = 0;
  size_t abandoned_calls_ = 0;          // Answered in their handlers' place, which still run.
  std::vector<ServerCall*> to_cancel_;  // Their RunOnCancel() is due.
  transport::Timer cancel_timer_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_SERVING_CONNECTION_H_
