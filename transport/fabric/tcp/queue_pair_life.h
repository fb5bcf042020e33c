#ifndef HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_LIFE_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_LIFE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/fabric/tcp/queue_pair_state.h"

namespace hawser::fabric {

// The life of a queue pair over TCP: its state, why it ended, and which of both its handler has yet to be
// notified of. It knows no socket: its owner closes that.
// Thread:   that of the queue pair.
// Lifetime: part of its TcpTraffic.
class TcpQueuePairLife {
 public:
  using State = TcpQueuePairState::State;
  using Event = TcpQueuePairState::Event;

  // For the handler, from the next Poll().
  struct News {
    bool established = false;
    bool ended = false;
    bool ended_before_established = false;
    absl::Status why;          // If it ended.
    std::string private_data;  // From the peer's answer.
  };

  explicit TcpQueuePairLife(uint32_t qp_num) : qp_num_(qp_num) {}

  uint32_t qp_num() const { return qp_num_; }
  const SocketAddress& peer_address() const { return peer_address_; }
  void set_peer_address(const SocketAddress& address) { peer_address_ = address; }
  std::string Peer() const { return peer_address_.ToString(); }

  State state() const { return state_; }
  void Move(Event event);
  // The handler will soon be notified of the end. What is posted until then is flushed.
  bool ends_soon() const {
    return state_ == State::kError && news_ != nullptr && !news_->ended_before_established;
  }

  // Both greetings are exchanged.
  void Establish(absl::string_view private_data);
  // Not in kError: notes why the queue pair ends. The caller then moves it with kEnd or kRefused. The next
  // Poll() notifies the handler, unless Disconnect() was called.
  void NoteEnd(absl::Status why, absl::string_view private_data = {});
  // From now on the handler is not called any more. False: nor was it before.
  bool Disconnect();

  bool has_news() const { return news_ != nullptr; }
  bool has_established() const { return news_ != nullptr && news_->established; }
  // Returns the private data for OnEstablished(), which is due. The end remains news, if there is one.
  std::string TakeEstablished();
  // Null: there are none.
  std::unique_ptr<News> TakeNews() { return std::move(news_); }

  // Why `call` is refused in this state.
  absl::Status NotUsable(absl::string_view call, bool in_forked_child) const;

 private:
  News& news() {
    if (news_ == nullptr) news_ = std::make_unique<News>();
    return *news_;
  }

  const uint32_t qp_num_;
  State state_ = State::kIdle;
  bool disconnected_ = false;  // By Disconnect().
  SocketAddress peer_address_;
  std::unique_ptr<News> news_;
  absl::Status error_;  // Why it is in kError.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_QUEUE_PAIR_LIFE_H_
