#ifndef HAWSER_OBSERVE_HTTP_CONNECTIONS_H_
#define HAWSER_OBSERVE_HTTP_CONNECTIONS_H_

#include <kj/async-io.h>
#include <kj/async.h>
#include <kj/compat/http.h>
#include <kj/timer.h>

#include <cstddef>
#include <cstdint>
#include <map>

namespace hawser::observe {

// The connections of an HTTP server: so many at most, each for so long, and with so many bytes of requests at most.
// Thread:   the one of its event loop (kj).
// Lifetime: ends its connections when it is destroyed; `server` and `timer` must outlive it.
class HttpConnections final : kj::TaskSet::ErrorHandler {
 public:
  HttpConnections(kj::HttpServer& server, kj::Timer& timer, size_t connections_max,
                  kj::Duration connection_time)
      : server_(server),
        timer_(timer),
        connections_max_(connections_max),
        connection_time_(connection_time),
        tasks_(*this) {}

  // Serves it. If there are as many as there may be, the oldest one ends.
  void Add(kj::Own<kj::AsyncIoStream> stream);
  size_t size() const { return ends_.size(); }

  // Of all requests of a connection. What comes after is not read, as if the client had ended there. kj 0.9 keeps the requests
  // of a client that sends them without a pause in one buffer, without a bound of its own. A single request may have 128 KiB.
  static constexpr size_t kRequestBytesMax = 256 << 10;

 private:
  void taskFailed(kj::Exception&&) override {}

  kj::HttpServer& server_;
  kj::Timer& timer_;
  const size_t connections_max_;
  const kj::Duration connection_time_;
  // By number, so the oldest one is the first. Fulfilled, the connection ends in the next turn of the event loop.
  std::map<uint64_t, kj::Own<kj::PromiseFulfiller<void>>> ends_;
  uint64_t next_ = 0;
  kj::TaskSet tasks_;  // Destroyed first: its tasks use the rest.
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_HTTP_CONNECTIONS_H_
