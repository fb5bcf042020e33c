#include "hawser/rpc/wire/no_channel.h"

#include <utility>

namespace hawser::internal {
namespace {

// The deleter of a null channel. It has nothing to delete, and says why.
struct KeepsWhy {
  void operator()(Channel*) const {}
  NoChannel why;
};

}  // namespace

std::shared_ptr<Channel> NullChannel(NoChannel why) {
  return std::shared_ptr<Channel>(static_cast<Channel*>(nullptr), KeepsWhy{std::move(why)});
}

const NoChannel* WhyNull(const std::shared_ptr<Channel>& null) {
  const KeepsWhy* const known = std::get_deleter<KeepsWhy>(null);
  return known == nullptr ? nullptr : &known->why;
}

}  // namespace hawser::internal
