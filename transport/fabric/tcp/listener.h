#ifndef HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "hawser/base/intrusive_list.h"
#include "hawser/base/peer_table.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/tcp/completion_queue.h"
#include "hawser/transport/fabric/tcp/greeting.h"
#include "hawser/transport/fabric/tcp/socket.h"
#include "hawser/transport/fabric/tcp/stream.h"

namespace hawser::fabric {

// A listening socket, and the peers that have connected and not yet sent a whole greeting, or finished the handshake of
// TLS before it. Anything may be at the other end, so their number, in all and by host, their time and their bytes are
// bounded.
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
  struct WaitsForTurn;
  // A peer that was accepted and has not greeted yet.
  class HalfOpen final : public EventSource, public PeerTable::Entry, public ListLink<WaitsForTurn> {
   public:
    HalfOpen(TcpListener& listener, UniqueFd socket, const SocketAddress& peer_address);
    ~HalfOpen();
    void OnEvents(uint32_t events) override;
    void OnTimer() override;
    // Goes on with its handshake. May destroy this, and the listener.
    void TakeTurn();
    const SocketAddress& peer_address() const { return peer_address_; }

    std::list<HalfOpen>::iterator self;

   private:
    // True: its session of TLS is there. False: it needs none, has said nothing yet, or is dropped.
    bool Start();
    // True: it is secure. False: nothing more can be done now, or it is dropped.
    bool Secure();
    void OnGreeting();
    void Reject();
    void AnswerStranger();
    void HangUp();
    void TellOfBadGreeting(absl::string_view what);
    void TellOfBadPeer(const absl::Status& what);

    TcpListener& listener_;
    Stream stream_;
    const SocketAddress peer_address_;
    // With credentials: it does not begin with TLS. It is answered in plain text.
    bool lacks_tls_ = false;
    bool is_secure_ = false;  // TLS's handshake is done.
    GreetingReader greeting_{kConnectPrivateDataMax};
  };

  // Handshakes of TLS that have to wait, because those of this Poll() have had their time. One of them goes on in each
  // Poll(), of the host that has had the fewest turns: numbers gain a host nothing.
  class Turns final : public EventSource {
   public:
    explicit Turns(TcpListener& listener) : listener_(listener) {
      listener_.completion_queue_.Register(*this);
    }
    ~Turns() {
      listener_.completion_queue_.SetTimer(*this, absl::InfiniteDuration());
      listener_.completion_queue_.Unregister(*this);
    }
    bool MustWait() const { return !waiting_.empty() || !listener_.completion_queue_.HasTimeForHandshakes(); }
    void Wait(HalfOpen& half_open);
    void OnEvents(uint32_t) override {}
    void OnTimer() override;

   private:
    TcpListener& listener_;
    IntrusiveList<HalfOpen, WaitsForTurn> waiting_;  // The one that has waited longest comes first.
    absl::flat_hash_map<PeerHost, uint64_t> had_;    // Turns of each host, until none waits.
  };

  TcpListener(TcpCompletionQueue& completion_queue, ListenHandler& handler, const ListenOptions& options);
  void Drop(PeerTable::Entry& half_open);
  bool PeerWaits() const;
  // Drops a half-open peer, to free a file descriptor; false: there is none.
  bool DropOne();

  TcpCompletionQueue& completion_queue_;
  ListenHandler& handler_;
  const std::shared_ptr<tls::Context> tls_;  // Null: no TLS.
  UniqueFd socket_;
  SocketAddress address_;
  PeerTable hosts_;
  Turns turns_{*this};
  std::list<HalfOpen> half_open_;  // Each is in hosts_.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_
