#include "hawser/transport/fabric/verbs/news.h"

#include <utility>

namespace hawser::fabric {

VerbsNews::News& VerbsNews::news() {
  if (news_ == nullptr) news_ = std::make_unique<News>();
  return *news_;
}

void VerbsNews::OnEstablished(std::string private_data) {
  news().established = true;
  news().private_data = std::move(private_data);
}

void VerbsNews::OnEnded(absl::Status why) {
  news().ended = true;
  news().why = std::move(why);
}

void VerbsNews::OnConnectFailed(absl::Status why, absl::string_view private_data) {
  OnEnded(std::move(why));
  news().ended_before_established = true;
  news().private_data = std::string(private_data);
}

void VerbsNews::Notify(VerbsEndpoint& endpoint, ConnectionHandler& handler) {
  const std::unique_ptr<News> told = std::move(news_);
  if (told->established && !told->ended) return handler.OnEstablished(told->private_data);
  if (told->established) {
    // Both happened since the last Poll(). The next Poll() reports the end.
    OnEnded(told->why);
    endpoint.ScheduleOnce();
    return handler.OnEstablished(told->private_data);
  }
  if (told->ended_before_established) return handler.OnConnectFailed(told->why, told->private_data);
  handler.OnDisconnected(told->why);
}

}  // namespace hawser::fabric
