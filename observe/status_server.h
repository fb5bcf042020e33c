#ifndef HAWSER_OBSERVE_STATUS_SERVER_H_
#define HAWSER_OBSERVE_STATUS_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// Shows a server's snapshot over HTTP, to people and to Prometheus:
//   /               the overview, a page of HTML without scripts, and the further ones of page.h; each as
//                   JSON, too
//   /snapshot.json  all that the pages show, and more
//   /metrics        Prometheus's text format
//   /healthz        200 "serving", or 503 with the state
// GET and HEAD only. It knows nothing of what it shows but its snapshot.
//
// Every program that reaches the address can read the page: it has no passwords. So it listens on loopback
// unless a host is given, and there it answers only requests whose Host is this machine's own name for
// itself: a web page that a user of this machine has open cannot read it by a name that it has made up.
//
// Thread:   any. It has one thread of its own, of lower priority, which serves all its connections and calls
//           the source. Its event loop (kj) makes the process ignore SIGPIPE.
// Lifetime: the destructor ends the connections and joins the thread, which waits for the source at most.
// Failure:  a peer that sends nonsense gets 400, one that is slow is cut off after Options::connection_time,
//           and when there are Options::connections_max connections, or three quarters of them of its host, a
//           new one ends the oldest of the host with the most. Requests of a connection are answered one at a
//           time, between those of others, 100 at most.
class StatusServer {
 public:
  struct Options {
    size_t connections_max = 64;
    // From a connection's start to its end, however many requests it carries.
    absl::Duration connection_time = absl::Seconds(10);
    // After an answer, until the next request.
    absl::Duration idle_time = absl::Seconds(1);
    // Requests within this time get the same snapshot.
    absl::Duration snapshot_age = absl::Milliseconds(250);
    // Between two points of the curves, of which there are kHistoryPoints.
    absl::Duration history_interval = absl::Seconds(1);
    // Priority of its thread: absolute, as setpriority(2). The thread is never raised above the program's own
    // priority, that of the thread that calls Start(). A page costs some milliseconds, and anyone who reaches
    // the port can ask for one, so pollers go first.
    int nice = 10;
    // What /healthz says, on the thread of the status server. Null: what a snapshot says. Given, /healthz
    // needs no snapshot.
    std::function<wire::Server::State()> state = {};
    // What /metrics ends with: metrics of the program's own in Prometheus's text format, version 0.0.4. Their
    // names do not begin with hawser_ or process_. Called for each scrape, on the thread of the status
    // server, whose other requests wait meanwhile. If it throws, or Prometheus could not read its text and
    // would drop the whole scrape, a comment says so in its place, with the line. Null: none.
    std::function<std::string()> metrics = {};
  };
  static constexpr size_t kHistoryPoints = 300;

  // Fills in what the server is doing. On the thread of the status server, whose other requests wait
  // meanwhile. Usually takes milliseconds: see Server::FillIn() (rpc/server.h).
  using Source = std::function<void(wire::Snapshot::Builder snapshot)>;

  // `address`: "HOST:PORT", "[::1]:9090", or ":PORT" or "PORT" for loopback; port 0 is any free one.
  // InvalidArgument: no such text, connections_max is not from 1 to 65,536, or a time is below a millisecond
  // or above a day (a snapshot_age of 0 is allowed). NotFound: the host is unknown.
  // AlreadyExists: the port is taken. Or another error of socket(2), bind(2).
  static absl::StatusOr<std::unique_ptr<StatusServer>> Start(absl::string_view address, Source source,
                                                             const Options& options);
  static absl::StatusOr<std::unique_ptr<StatusServer>> Start(absl::string_view address, Source source) {
    return Start(address, std::move(source), Options());
  }
  ~StatusServer();

  // Gives up the port, at once: another program can listen there, and does in the restart of a server.
  // Connections that are open are served on. Idempotent. Thread: any.
  void StopListening();

  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

  // "http://127.0.0.1:9090".
  const std::string& url() const { return url_; }

 private:
  class Loop;
  StatusServer(std::string url, std::unique_ptr<Loop> loop);

  const std::string url_;
  const std::unique_ptr<Loop> loop_;
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_STATUS_SERVER_H_
