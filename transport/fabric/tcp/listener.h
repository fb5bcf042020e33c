#ifndef HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
#include "hawser/base/peer_table.h"
#include "hawser/base/peer_turns.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/socket.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// A listening socket, and the peers that have connected and not yet sent a whole greeting, or finished the
// handshake of TLS before it. Anything may be at the other end, so their number, in all and by host, their
// time and their bytes are bounded.
// Thread:   that of its completion queue.
class TcpListener final : public Listener, public EventSource {
 public:
  static absl::StatusOr<std::unique_ptr<TcpListener>> Create(TcpCompletionQueue& completion_queue,
                                                             const SocketAddress& address,
                                                             ListenHandler& handler,
                                                             const ListenOptions& options);
  ~TcpListener();

  SocketAddress address() const override { return address_; }

  void OnEvents(uint32_t events) override;
  void OnTimer() override;

 private:
  // A peer that was accepted and has not greeted yet.
  class HalfOpen final : public EventSource, public PeerTable::Entry, public PeerTurns::Entry {
   public:
    HalfOpen(TcpListener& listener, UniqueFd socket, const SocketAddress& peer_address);
    ~HalfOpen();
    void OnEvents(uint32_t events) override;
    void OnTimer() override;
    // Goes on with its handshake. May destroy this, and the listener.
    void TakeTurn();
    const PeerHost& host() const { return host_; }
    // Its handshake has begun, so that it goes before those that only want to begin one. But not for ever:
    // each event of a peer that sends its part byte by byte is a turn.
    bool is_in_front() const { return turns_ > 0 && turns_ < kTurnsInFrontMax; }

    std::list<HalfOpen>::iterator self;

   private:
    static constexpr uint32_t kTurnsInFrontMax = 4;

    // True: it has begun with TLS. False: it has said nothing yet, or something else, or is dropped.
    bool BeginsTls();
    // True: its session of TLS is there. False: it is dropped.
    bool Start();
    void MoveTo(PeerTable& table);
    // True: it is secure. False: nothing more can be done now, or it is dropped.
    bool Secure();
    void OnGreeting();
    void Reject();
    void AnswerStranger();
    void HangUp();
    void ReportBadGreeting(absl::string_view what);
    void ReportBadPeer(const absl::Status& what);

    TcpListener& listener_;
    Stream stream_;
    const SocketAddress peer_address_;
    const PeerHost host_;
    PeerTable* table_ = nullptr;  // Which it is in: fresh_ or begun_.
    uint32_t turns_ = 0;          // For its handshake.
    // With credentials: it does not begin with TLS. It is answered in plain text.
    bool lacks_tls_ = false;
    bool is_secure_ = false;  // TLS's handshake is done.
    GreetingReader greeting_{kConnectPrivateDataMax};
  };

  // Handshakes of TLS that have to wait, because those of this Poll() have had their time. One of them goes
  // on in each Poll(): first those that have begun, and of each kind hosts by turns.
  class Turns final : public EventSource {
   public:
    explicit Turns(TcpListener& listener) : listener_(listener) {
      listener_.completion_queue_.Register(*this);
    }
    ~Turns() {
      listener_.completion_queue_.SetTimer(*this, absl::InfiniteDuration());
      listener_.completion_queue_.Unregister(*this);
    }
    bool MustWait(const HalfOpen& half_open) const {
      return !begun_.empty() || (!half_open.is_in_front() && !fresh_.empty()) ||
             !listener_.completion_queue_.HasTimeForHandshakes();
    }
    void Wait(HalfOpen& half_open);
    void OnEvents(uint32_t) override {}
    void OnTimer() override;

   private:
    TcpListener& listener_;
    PeerTurns begun_;
    PeerTurns fresh_;  // And those that have been in front too often.
  };

  TcpListener(TcpCompletionQueue& completion_queue, ListenHandler& handler, const ListenOptions& options);
  void Drop(PeerTable::Entry& half_open);
  void MakeRoom(const PeerTable& table, const PeerHost& host);
  bool PeerWaits() const;
  // Drops a half-open peer, to free a file descriptor; false: there is none.
  bool DropOne();

  TcpCompletionQueue& completion_queue_;
  ListenHandler& handler_;
  const std::shared_ptr<tls::Context> tls_;  // Null: no TLS.
  UniqueFd socket_;
  SocketAddress address_;
  // The peers that no handshake of TLS has been begun with, and those with one. With TLS each kind has half
  // of the places: a flood of one kind makes no room for itself at the cost of the other. A peer whose
  // handshake has begun has cost this side a signature, and it needs a round trip for its answer.
  PeerTable fresh_;
  PeerTable begun_;
  Turns turns_{*this};
  std::list<HalfOpen> half_open_;  // Each is in one of the two.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_
