#ifndef HAWSER_TRANSPORT_LOG_PEER_LOG_H_
#define HAWSER_TRANSPORT_LOG_PEER_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/strings/string_view.h"
#include "hawser/base/mutex.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/log/log.h"

namespace hawser::transport {

// The one way by which what a peer did comes to the log. A peer can cause a line as often as it likes, so
// lines are limited, for the process and for each peer host or other subject, and the next line that is
// written counts those that were not.
// Thread:  any.
// Failure: a line whose reader is behind is one that was not written.
class PeerLog {
 public:
  // So many lines at once, then one for each interval that has passed.
  struct Rate {
    int burst;
    int64_t interval_ns;
  };
  struct Limits {
    Rate process = {20, 1'000'000'000};  // For the lines about all peers, and for those about other subjects.
    Rate subject = {3, 10'000'000'000};
    Rate debug = {1000, 1'000'000};  // For all lines of kDebug, which do not count against the others.
  };

  using Clock = absl::AnyInvocable<int64_t()>;
  // Takes a line, or refuses it, soon. Called by several threads at once.
  using Write = absl::AnyInvocable<bool(LogSeverity severity, absl::string_view line) const>;

  PeerLog(const Limits& limits, Clock now_ns, Write write);

  // The log of the process, with the limits above: TryLog().
  static PeerLog& Process();

  // `text`, if the limits allow it. Peers of one host (PeerHost) count as one.
  void Line(LogSeverity severity, const SocketAddress& peer, absl::string_view text);
  // A line of what any peer can cause: `subject` is what it is about, a method's name, say. Lines about peers
  // do not count against a subject.
  void Line(LogSeverity severity, absl::string_view subject, absl::string_view text);
  // A line of kDebug. Its text costs something: ask first whether LogLevel() wants it.
  void Debug(absl::string_view text);

 private:
  // Lines that may be written now: at most `burst`.
  struct Bucket {
    int64_t used_until_ns = 0;  // A line takes one interval of the time that has passed; a burst runs ahead.
    bool Allows(const Rate& rate, int64_t now_ns) const;
    void Take(const Rate& rate, int64_t now_ns);
  };

  // Where a line counts: lines about peers do not count against other subjects.
  enum Kind : size_t { kPeers, kSubjects, kKinds };

  void LineAbout(Kind kind, size_t subject_hash, LogSeverity severity, absl::string_view text);
  void LineIf(bool allowed, LogSeverity severity, absl::string_view text);
  // The limits allow a line now, which counts against them.
  bool Take(Kind kind, size_t subject_hash);
  bool TakeDebug();

  // Subjects share these by their hash, so that their number costs no memory.
  static constexpr size_t kBuckets = 1024;
  static constexpr size_t kTextBytesMax = 1024;

  const Limits limits_;
  Write write_;
  Mutex mutex_;
  Clock now_ns_ ABSL_GUARDED_BY(mutex_);
  std::array<Bucket, kKinds> process_ ABSL_GUARDED_BY(mutex_);
  std::array<std::array<Bucket, kBuckets>, kKinds> subjects_ ABSL_GUARDED_BY(mutex_);
  Bucket debug_ ABSL_GUARDED_BY(mutex_);
  std::atomic<uint64_t> suppressed_{0};  // Since the last line that was written.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_LOG_PEER_LOG_H_
