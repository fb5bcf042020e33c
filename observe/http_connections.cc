#include "hawser/observe/http_connections.h"

namespace hawser::observe {

void HttpConnections::Add(kj::Own<kj::AsyncIoStream> stream) {
  if (ends_.size() >= connections_max_) {
    ends_.begin()->second->fulfill();
    ends_.erase(ends_.begin());
  }
  const uint64_t number = next_++;
  auto ended = kj::newPromiseAndFulfiller<void>();
  ends_.emplace(number, kj::mv(ended.fulfiller));
  tasks_.add(server_.listenHttp(kj::mv(stream))
                 .exclusiveJoin(timer_.afterDelay(connection_time_))
                 .exclusiveJoin(kj::mv(ended.promise))
                 .catch_([](kj::Exception&&) {})
                 .then([this, number] { ends_.erase(number); }));
}

}  // namespace hawser::observe
