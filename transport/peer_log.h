#ifndef HAWSER_TRANSPORT_PEER_LOG_H_
#define HAWSER_TRANSPORT_PEER_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// The one way by which what a peer did comes to a log. A peer can cause a line as often as it likes, so lines
// are limited, for the process and for each peer address, and the next line that is written counts those that
// were not.
// Thread:  any.
// Failure: never blocks. A line that finds the log in use by another thread, or its reader behind, is one
//          that was not written.
class PeerLog {
 public:
  // So many lines at once, then one for each interval that has passed.
  struct Rate {
    int burst;
    int64_t interval_ns;
  };
  struct Limits {
    Rate process = {20, 1'000'000'000};
    Rate address = {3, 10'000'000'000};
  };

  // Takes a whole line, or refuses it. Called by one thread at a time.
  using Write = absl::AnyInvocable<bool(absl::string_view line)>;

  PeerLog(const Limits& limits, Write write);

  // That of the process: stderr, with the limits above.
  static PeerLog& Stderr();

  // "hawser: `text`", escaped (EscapePeerText()) and cut, if the limits allow it. `now_ns`: of any clock, but
  // of one. Peers of one host (fabric::PeerHost) count as one.
  void Line(int64_t now_ns, const fabric::SocketAddress& peer, absl::string_view text);

 private:
  // Lines that may be written now: at most `burst`.
  struct Bucket {
    int64_t used_until_ns = 0;  // A line takes one interval of the time that has passed; a burst runs ahead.
    bool Allows(const Rate& rate, int64_t now_ns) const;
    void Take(const Rate& rate, int64_t now_ns);
  };

  // Addresses share these by their hash, so that their number costs no memory.
  static constexpr size_t kAddressBuckets = 256;
  static constexpr size_t kTextBytesMax = 1024;

  const Limits limits_;
  absl::Mutex mutex_;
  Write write_ ABSL_GUARDED_BY(mutex_);
  Bucket process_ ABSL_GUARDED_BY(mutex_);
  std::array<Bucket, kAddressBuckets> addresses_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> suppressed_{0};  // Since the last line that was written.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_PEER_LOG_H_
