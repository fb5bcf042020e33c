#ifndef HAWSER_TRANSPORT_LOG_LOG_H_
#define HAWSER_TRANSPORT_LOG_LOG_H_

#include <cstdint>
#include <functional>

#include "absl/strings/string_view.h"

namespace hawser {

enum class LogSeverity : uint8_t {
  kDebug,    // What goes as it should: connections that open and close, channels that change their state.
  kInfo,     // What needs no action: spans are written again, say.
  kWarning,  // Something was refused or lost, or is slow. The process goes on as it should.
  kError,    // The program has to be mended, or the machine needs more of something.
};

// Takes one line of the log: UTF-8 without control characters, without a line feed, at most 2 KiB.
using LogSink = std::function<void(LogSeverity severity, absl::string_view line)>;

// Sends the log of this process to `sink`, and an empty one to stderr, where it goes until then.
//
// Thread:   any. The log has a thread of its own for the sink, which it calls there, for one line at a time.
//           So a sink may block, take locks, log, and call the library. What it throws is dropped, and the
//           line goes to stderr.
// Lifetime: this waits until the previous sink has taken the lines that came before this call. The previous
//           sink is not called any more. (If it is that sink which calls this, this does not wait.) Set an
//           empty sink before what the present one uses ends. After fork() the child's log goes to stderr.
// Failure:  a sink that is 256 lines behind misses lines, and the next line counts those.
void SetLogSink(LogSink sink);

// Lines below `least` are not written. Until this is called it is what the environment variable
// HAWSER_LOG_LEVEL says ("debug", "info", "warning" or "error"), or kInfo. If it says something else, a line
// on stderr says so when the level is first needed, at the latest with the first Runtime.
// Thread: any.
void SetLogLevel(LogSeverity least);
LogSeverity LogLevel();

namespace transport {

// Writes `text`, escaped (EscapePeerText()) and cut, to the log: to the sink or, behind "hawser: ", to
// stderr. Does not wait for the reader of a pipe, unless code that is not ours fills it at the same time. On
// stderr it waits some milliseconds, at most, for another thread that writes a line. Lines that a peer can
// cause go through PeerLog.
// Thread:   any.
// Failure:  false: the line is lost, because the sink, or the reader of stderr, is behind. A line below
//           LogLevel() is not.
bool TryLog(LogSeverity severity, absl::string_view text);

// The same, but it counts a lost line, and a later line says how many there were.
void Log(LogSeverity severity, absl::string_view text);

}  // namespace transport
}  // namespace hawser

#endif  // HAWSER_TRANSPORT_LOG_LOG_H_
