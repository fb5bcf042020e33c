#ifndef HAWSER_TRANSPORT_LANE_LANE_POSTS_H_
#define HAWSER_TRANSPORT_LANE_LANE_POSTS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "hawser/transport/lane/lane_operation.h"

namespace hawser::transport {

// The operations of a lane of which something is posted, in the order of their work requests.
// Thread:   that of the lane.
class LanePosts {
 public:
  // Work requests of one operation that were posted one behind the other.
  struct Post {
    uint64_t last = 0;  // The number of the last of them.
    LaneOperation* operation = nullptr;
    uint32_t pieces = 0;
  };

  void Add(const Post& post) { posts_.push_back(post); }
  // The oldest one, if all of its work requests have numbers below `done`. False: there is none.
  bool TakeDone(uint64_t done, Post& post) {
    if (posts_.empty() || posts_.front().last >= done) return false;
    post = posts_.front();
    posts_.pop_front();
    return true;
  }
  // The operation of work request `number`. Null: it is of none.
  LaneOperation* Find(uint64_t number) const {
    for (const Post& post : posts_) {
      if (post.last >= number) return number + post.pieces > post.last ? post.operation : nullptr;
    }
    return nullptr;
  }
  // All operations, each once, in order. None is left.
  std::vector<LaneOperation*> TakeAll() {
    std::vector<LaneOperation*> all;
    for (const Post& post : std::exchange(posts_, {})) {
      if (std::find(all.begin(), all.end(), post.operation) == all.end()) all.push_back(post.operation);
    }
    return all;
  }

 private:
  std::deque<Post> posts_;
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LANE_LANE_POSTS_H_
