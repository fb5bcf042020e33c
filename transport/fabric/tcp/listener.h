#ifndef HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_

#include <cstdint>
#include <list>
#include <memory>

#include "absl/status/statusor.h"
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
  // A peer that was accepted and has not greeted yet.
  class HalfOpen final : public EventSource, public PeerTable::Entry {
   public:
    HalfOpen(TcpListener& listener, UniqueFd socket, const SocketAddress& peer_address);
    ~HalfOpen();
    void OnEvents(uint32_t events) override;
    void OnTimer() override;

    std::list<HalfOpen>::iterator self;

   private:
    // True: it is secure, or needs not be. False: nothing more can be done now, or it is dropped.
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
    GreetingReader greeting_{kConnectPrivateDataMax};
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
  std::list<HalfOpen> half_open_;  // Each is in hosts_.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_LISTENER_H_
