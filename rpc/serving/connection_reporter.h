#ifndef HAWSER_RPC_SERVING_CONNECTION_REPORTER_H_
#define HAWSER_RPC_SERVING_CONNECTION_REPORTER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "hawser/rpc/serving/server_report.h"

namespace hawser::internal {

class ServerCall;
class ServingConnection;
enum class HandlerStage : uint8_t;

// What snapshots and logs say of a connection and its calls.
// Thread:   on the connection's poller.
// Lifetime: made where it is used.
class ConnectionReporter {
 public:
  explicit ConnectionReporter(const ServingConnection& of) : of_(of) {}

  // Adds the connection, which has `receive_bytes` of the pool and began at `since_unix_ns`, and its calls.
  void AddTo(PollerReport& report, uint64_t receive_bytes, int64_t since_unix_ns) const;

  // The calls of one stage that have not ended, answered or not: "kv.capnp:KeyValue.get from
  // tcp://10.0.0.7:51234, 12 s old".
  std::vector<std::string> DescribeCalls(HandlerStage stage) const;

 private:
  CallReport ReportOf(const ServerCall& call, HandlerStage stage, int64_t now_ns) const;

  const ServingConnection& of_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVING_CONNECTION_REPORTER_H_
