#ifndef HAWSER_OBSERVE_STATUS_SERVICE_H_
#define HAWSER_OBSERVE_STATUS_SERVICE_H_

#include <capnp/message.h>
#include <kj/async.h>
#include <kj/compat/http.h>
#include <kj/timer.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/observe/history.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// What the status server answers to each request: the pages and their JSON (page.h), /snapshot.json,
// /metrics, /healthz. GET and HEAD without a body only. It opens no socket, so that tests can run it over a
// pipe in memory.
// Thread:  the one of its event loop (kj), which also calls the source.
// Failure: each request that kj can read gets an answer: 200, or 403 (see Options::loopback_only), 404, 405,
//          413, 500 if the source throws, 503 from /healthz, or from the other paths while kAnswerBytesMax
//          wait for slow readers.
class StatusService final : public kj::HttpService,
                            public kj::HttpServerErrorHandler,
                            public kj::HttpServerCallbacks {
 public:
  // See StatusServer::Source.
  using Source = std::function<void(wire::Snapshot::Builder snapshot)>;

  struct Options {
    // Answers only requests whose Host is this machine's name for itself, "localhost" or a loopback address,
    // so that a web page that a user of this machine has open cannot read it by a name that it has made up.
    bool loopback_only = true;
    // See StatusServer::Options.
    absl::Duration snapshot_age;
    absl::Duration connection_time;
    absl::Duration idle_time;
    std::function<wire::Server::State()> state;
    std::function<std::string()> metrics;
    size_t history_points = 300;
  };

  StatusService(Source source, const Options& options);

  // What the kj::HttpServer that serves it is made with. That server must not outlive it.
  const kj::HttpHeaderTable& headers() const { return *headers_; }
  kj::HttpServerSettings Settings();

  // What serves one connection, kRequestsMax requests of it at most: the last one's answer ends it, or the
  // answer to one that asks for that ("Connection: close"). After each answer the event loop looks at all
  // other connections before the next request is read, though that may have come already. `timer` and this
  // outlive it.
  kj::Own<kj::HttpService> OfConnection(kj::Timer& timer);
  static constexpr int kRequestsMax = 100;

  // Adds a point to the curves.
  void Sample();

  // Bytes of answers that are being written, all connections together; a single one may be longer.
  static constexpr size_t kAnswerBytesMax = 64 << 20;
  size_t answer_bytes() const { return answer_bytes_; }

  // kj::HttpService
  kj::Promise<void> request(kj::HttpMethod method, kj::StringPtr url, const kj::HttpHeaders& headers,
                            kj::AsyncInputStream& body, Response& response) override;

  // kj::HttpServerCallbacks
  bool shouldClose() override { return closes_; }

  // kj::HttpServerErrorHandler
  kj::Promise<void> handleClientProtocolError(kj::HttpHeaders::ProtocolError error,
                                              Response& response) override;
  kj::Promise<void> handleApplicationError(kj::Exception exception, kj::Maybe<Response&> response) override;

 private:
  class Connection;
  struct Result {
    uint32_t code;
    const char* name;
    const char* type;
    std::string body;
  };

  // The present snapshot, or one that is not older than Options::snapshot_age.
  wire::Snapshot::Reader Take();
  Result Get(absl::string_view url);
  Result Health();
  std::string Metrics();
  kj::Promise<void> Answer(Response& response, Result result, bool allow = false);

  const Source source_;
  const Options options_;
  History history_;
  std::unique_ptr<capnp::MallocMessageBuilder> snapshot_;
  std::chrono::steady_clock::time_point taken_;
  size_t answer_bytes_ = 0;
  bool closes_ = false;  // The answer that is being sent is the last one of its connection.
  kj::HttpHeaderId policy_, no_sniff_, cache_, referrer_, allow_;
  kj::Own<kj::HttpHeaderTable> headers_;
};

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_STATUS_SERVICE_H_
