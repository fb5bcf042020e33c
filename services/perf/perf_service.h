#ifndef HAWSER_SERVICES_PERF_PERF_SERVICE_H_
#define HAWSER_SERVICES_PERF_PERF_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/base/peer_turns.h"
#include "hawser/base/socket_address.h"
#include "hawser/perf.rpc.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/services/perf/perf_memory.h"
#include "hawser/services/perf/raw_port.h"
#include "hawser/transport/clock/environment.h"
#include "hawser/transport/runtime.h"

namespace hawser::internal {

// The service that clients measure a server with (rpc/hawser/perf.capnp).
//
// What clients can make the server hold: for each network payloads that answers to `get` share, one for each
// power of two up to a kSharedPoolFraction-th of the pool, so twice that in all; for each call with a larger
// payload, or one whose size ends within a word, the payload of its own answer, which counts against the
// client's host like any response; kRawPortsMax raw ports, kRawPortsOfHostMax of one host, which have 24 MiB
// each at most; and 8 MiB that clients READ and WRITE, from the first such request on. A shared payload goes
// when it was not asked for during Settings::keep, or when memory is short, in either case unless an answer
// refers to it.
// Thread:   any. A thread of its own, from the first need of it until Close(), fills payloads, makes the
//           memory that clients reach, and ends what is over, so that no handler holds its poller for that.
// Lifetime: its owner calls Close() first, and keeps it until the last handler has returned.
class PerfService final : public ServerExtension, public perf::PerfService {
  using Wire = perf::Perf;

 public:
  static constexpr int kRawPortsMax = 4;
  static constexpr int kRawPortsOfHostMax = 3;
  // No answer counts what it shares with others, so that has to be a small part of the pool.
  static constexpr uint64_t kSharedPoolFraction = 64;

  struct Settings {
    absl::Duration keep = absl::Seconds(10);     // An unused payload.
    absl::Duration look = absl::Seconds(1);      // At a payload: whether memory is short.
    absl::Duration accept = absl::Seconds(5);    // From openRaw until the token is there.
    absl::Duration raw_life = absl::Minutes(1);  // From openRaw until the connection is ended.
    absl::Duration refusal = absl::Seconds(1);   // Memory that could not be made is not tried for again.
    bool queue_pairs_of_sockets = false;         // Tests have no other network.
  };

  // Uses connection, runtime, pool, poller.mode and credentials of `options`.
  PerfService(ServerExtensionHost& host, transport::Environment& environment, const ServerOptions& options,
              const Settings& settings);
  PerfService(ServerExtensionHost& host, transport::Environment& environment, const ServerOptions& options)
      : PerfService(host, environment, options, Settings()) {}
  ~PerfService() override;

  uint64_t interface_id() const override;
  // Ends raw ports, and answers the calls that wait. Later ones get Unavailable.
  void Close(absl::Time deadline) override;

  absl::Status Limits(ServerContext& context, Wire::LimitsParams::Reader request,
                      Wire::LimitsResults::Builder reply) override;
  absl::Status Echo(ServerContext& context, Wire::EchoParams::Reader request,
                    Wire::EchoResults::Builder reply) override;
  absl::Status Put(ServerContext& context, Wire::PutParams::Reader request,
                   Wire::PutResults::Builder reply) override;
  absl::Status Get(ServerContext& context, Wire::GetParams::Reader request,
                   Wire::GetResults::Builder reply) override;
  absl::Status OpenRaw(ServerContext& context, Wire::OpenRawParams::Reader request,
                       Wire::OpenRawResults::Builder reply) override;
  absl::Status Share(ServerContext& context, Wire::ShareParams::Reader request,
                     Wire::ShareResults::Builder reply) override;

 private:
  struct Payload {
    std::shared_ptr<const Buffer> buffer;
    absl::Time unused_from;      // Unless it is asked for until then.
    uint64_t refusals_then = 0;  // When it was made.
  };
  // By the scheme of a network, of which a server has two at most, and the size: a power of two, or the
  // largest.
  using Payloads = std::map<std::pair<std::string, uint64_t>, Payload>;
  // A `get` whose payload has to be made.
  struct Waiting final : PeerTurns::Entry {
    Waiting(DeferredCall from, Wire::GetResults::Builder into, absl::string_view on, size_t size_bytes)
        : call(std::move(from)), reply(into), scheme(on), bytes(size_bytes) {}
    DeferredCall call;
    Wire::GetResults::Builder reply;
    const std::string scheme;
    const size_t bytes;
  };
  absl::StatusOr<std::unique_ptr<RawPort>> OpenPort(perf::RawService service, const RawPort::Options& options,
                                                    std::shared_ptr<transport::Runtime> runtime);
  // The one of the server that the client knows as `known_as`, or else one that it may reach.
  SocketAddress AddressFor(absl::string_view known_as) const;
  uint64_t payload_bytes_max() const;
  bool IsShared(uint64_t bytes) const;
  // The size of the payload for `bytes`.
  uint64_t SharedSizeFor(uint64_t bytes) const;

  absl::Status StartThreadOnce() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  absl::Time NextTime() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The one whose turn it is; null: none waits.
  std::unique_ptr<Waiting> TakeWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Answer(Waiting& waiting);
  // Those that are over, for the caller to destroy without the lock.
  std::vector<std::unique_ptr<RawPort>> TakeEnded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Payloads that are not used any more, likewise.
  std::vector<std::shared_ptr<const Buffer>> TakeUnused(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  ServerExtensionHost& host_;
  transport::Environment& environment_;
  const ConnectionOptions connection_;
  const PollingMode polling_;
  const bool has_credentials_;
  const uint64_t shared_bytes_max_;
  const Settings settings_;
  PerfMemory memory_;

  absl::Mutex mutex_;
  absl::CondVar changed_;  // Something for the thread.
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);  // Runs Run().
  Payloads payloads_ ABSL_GUARDED_BY(mutex_);
  absl::Time look_at_payloads_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // Owns Waitings, until TakeWaiting(), in turns of their hosts: a payload takes up to a second to make.
  // Bounded by the slots of connections.
  PeerTurns waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<RawPort>> raw_ports_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_SERVICES_PERF_PERF_SERVICE_H_
