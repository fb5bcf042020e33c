#ifndef HAWSER_SERVICES_PERF_RAW_SOCKET_PORT_H_
#define HAWSER_SERVICES_PERF_RAW_SOCKET_PORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/unique_fd.h"
#include "hawser/measure/raw_socket.h"
#include "hawser/services/perf/raw_port.h"

namespace hawser::internal {

// A raw port of TCP.
//
// The connection is the first one that comes from the right host and begins with the token. Others are
// closed: those of other hosts at once, the oldest of this host when more than kUnknownMax have not sent the
// whole token yet.
class RawSocketPort final : public RawPort {
 public:
  static constexpr size_t kUnknownMax = 16;
  // What the peer may ask for at once (measure::ServeRaw()).
  static constexpr uint64_t kBytesMax = 16 << 20;

  // ResourceExhausted: the system has no thread or file for it. Or another error of socket(2), bind(2), with
  // the address.
  static absl::StatusOr<std::unique_ptr<RawPort>> Open(const Options& options, measure::RawService service,
                                                       std::function<void()> on_end);
  ~RawSocketPort() override;

  void Stop() override;

 private:
  RawSocketPort(const Options& options, measure::RawService service, UniqueFd listener, uint16_t port)
      : RawPort(options, port), service_(service), listener_(std::move(listener)) {}
  void Run() override;
  // Not open: the time is over, or Stop() was called.
  UniqueFd Await(int listener);

  const measure::RawService service_;
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  UniqueFd listener_ ABSL_GUARDED_BY(mutex_);  // Closed by the thread.
  int connection_ ABSL_GUARDED_BY(mutex_) = -1;
};

}  // namespace hawser::internal

#endif  // HAWSER_SERVICES_PERF_RAW_SOCKET_PORT_H_
