#ifndef HAWSER_OBSERVE_HTTP_CONNECTIONS_H_
#define HAWSER_OBSERVE_HTTP_CONNECTIONS_H_

#include <kj/async-io.h>
#include <kj/async.h>
#include <kj/compat/http.h>
#include <kj/timer.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "hawser/base/peer_table.h"

namespace hawser::observe {

// The connections of an HTTP server: so many at most, three quarters of them of one host, each for so long,
// and with so many bytes of requests at most.
// Thread:   the one of its event loop (kj).
// Lifetime: ends its connections when it is destroyed; `server` and `timer` must outlive it.
class HttpConnections final : kj::TaskSet::ErrorHandler {
 public:
  HttpConnections(kj::HttpServer& server, kj::Timer& timer, size_t connections_max,
                  kj::Duration connection_time)
      : server_(server),
        timer_(timer),
        hosts_(connections_max, (connections_max * 3 + 3) / 4),
        connection_time_(connection_time),
        tasks_(*this) {}

  // Serves it, which comes from `host`. If there are as many as there may be, the oldest one of the host with
  // the most ends.
  void Add(kj::Own<kj::AsyncIoStream> stream, const PeerHost& host);
  size_t size() const { return open_.size(); }

  // The bytes of all requests of a connection. What comes after is not read, as if the client had ended
  // there. kj 0.9 keeps the requests of a client that sends them without a pause in one buffer, without a
  // bound of its own. A single request may have 128 KiB.
  static constexpr size_t kRequestBytesMax = 256 << 10;

 private:
  struct Open final : PeerTable::Entry {
    uint64_t number = 0;
    // Fulfilled, the connection ends in the next turn of the event loop.
    kj::Own<kj::PromiseFulfiller<void>> end;
  };
  void taskFailed(kj::Exception&&) override {}
  void Close(uint64_t number);

  kj::HttpServer& server_;
  kj::Timer& timer_;
  PeerTable hosts_;
  const kj::Duration connection_time_;
  std::map<uint64_t, std::unique_ptr<Open>> open_;  // By number. Each is in hosts_.
  uint64_t next_ = 0;
  kj::TaskSet tasks_;  // Destroyed first: its tasks use the rest.
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_HTTP_CONNECTIONS_H_
