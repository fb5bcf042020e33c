#include "hawser/transport/fabric/tcp/queue_pair_life.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/state_machine.h"

namespace hawser::fabric {

void TcpQueuePairLife::Move(Event event) {
  state_ = Moved<TcpQueuePairState>(state_, event,
                                    [this] { return absl::StrCat("queue pair ", qp_num_, " to ", Peer()); });
}

void TcpQueuePairLife::Establish(absl::string_view private_data) {
  Move(Event::kAgreed);
  news().established = true;
  news().private_data = std::string(private_data);
}

void TcpQueuePairLife::NoteEnd(absl::Status why, absl::string_view private_data) {
  error_ = std::move(why);
  if (disconnected_) return;
  news().ended = true;
  news().ended_before_established =
      state_ == State::kConnecting || state_ == State::kSecuring || state_ == State::kGreeting;
  news().why = error_;
  if (!private_data.empty()) news().private_data = std::string(private_data);
}

bool TcpQueuePairLife::Disconnect() {
  if (disconnected_) return false;
  disconnected_ = true;
  news_.reset();
  return true;
}

std::string TcpQueuePairLife::TakeEstablished() {
  news_->established = false;
  std::string private_data = std::move(news_->private_data);
  if (!news_->ended) news_.reset();
  return private_data;
}

absl::Status TcpQueuePairLife::NotUsable(absl::string_view call, bool in_forked_child) const {
  if (in_forked_child) {
    return absl::FailedPreconditionError(absl::StrCat(
        call, " to ", Peer(), ": this process is a child after fork(), and the connection is its parent's"));
  }
  if (state_ != State::kError) {
    return absl::FailedPreconditionError(absl::StrCat(call, ": the queue pair is not connected yet"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(call, " to ", Peer(), ": the queue pair is in error: ",
                   error_.ok() ? "Disconnect() was called, or a work request failed" : error_.message()));
}

}  // namespace hawser::fabric
