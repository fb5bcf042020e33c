#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_NEWS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_NEWS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/fabric/verbs/endpoint.h"

namespace hawser::fabric {

// What one queue pair's handler is to be notified of, from the next Poll() on: that it is established, then
// that it has ended; one in each Poll().
// Thread:   that of the queue pair.
class VerbsNews {
 public:
  void OnEstablished(std::string private_data);
  void OnEnded(absl::Status why);
  void OnConnectFailed(absl::Status why, absl::string_view private_data);
  void Clear() { news_.reset(); }

  bool empty() const { return news_ == nullptr; }
  // The end is among them.
  bool ended() const { return !empty() && news_->ended; }
  // The next is the end of a connection that the handler was notified of: completions from before the end
  // come first.
  bool is_disconnection() const { return ended() && !news_->established && !news_->ended_before_established; }

  // Tells `handler` the next, which may destroy this and `endpoint`. If more is left, this schedules a turn.
  // Not if empty().
  void Notify(VerbsEndpoint& endpoint, ConnectionHandler& handler);

 private:
  struct News {
    bool established = false;
    bool ended = false;
    bool ended_before_established = false;
    absl::Status why;
    std::string private_data;
  };
  News& news();

  std::unique_ptr<News> news_;  // Few have some at a time.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_NEWS_H_
