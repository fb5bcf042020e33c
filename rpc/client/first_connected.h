#ifndef HAWSER_RPC_CLIENT_FIRST_CONNECTED_H_
#define HAWSER_RPC_CLIENT_FIRST_CONNECTED_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"

namespace hawser::internal {

class ChannelCore;

// The first attempts of several channels, of which one has to succeed: what Channel::ConnectAny() waits for.
// Thread:   any.
// Lifetime: shared by that call and the channels, until their first attempts have ended.
class FirstConnected : public std::enable_shared_from_this<FirstConnected> {
 public:
  explicit FirstConnected(size_t count) : results_(count) {}

  // `channel` is the one with this number. Called once for each, before Wait().
  void Await(size_t number, const std::shared_ptr<ChannelCore>& channel);

  // Waits until one has succeeded (OK), or all have failed: an error with the reasons. A channel whose poller
  // is held by a callback for its connect_timeout counts as failed. `channels`: those, one at least. On no
  // poller.
  absl::Status Wait(absl::Span<const std::shared_ptr<ChannelCore>> channels);

 private:
  // Its first attempt has ended.
  void SetResult(size_t number, const absl::Status& result);
  bool decided() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ErrorOfAll(absl::Span<const std::shared_ptr<ChannelCore>> channels) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  absl::CondVar changed_;
  std::vector<std::optional<absl::Status>> results_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_FIRST_CONNECTED_H_
