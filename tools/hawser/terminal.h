#ifndef HAWSER_TOOLS_HAWSER_TERMINAL_H_
#define HAWSER_TOOLS_HAWSER_TERMINAL_H_

#include <signal.h>
#include <termios.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "hawser/base/unique_fd.h"
#include "hawser/tools/hawser/text_table.h"

namespace hawser::tool {

// The signals that a program with a screen waits for, so that they do not end it at once: SIGINT, SIGTERM,
// SIGHUP, SIGWINCH, SIGTSTP.
// Thread:   make it before other threads start, which then leave these signals alone.
// Lifetime: the destructor lets the signals act again.
class ScreenSignals {
 public:
  static absl::StatusOr<std::unique_ptr<ScreenSignals>> Take();
  ~ScreenSignals();
  ScreenSignals(const ScreenSignals&) = delete;
  ScreenSignals& operator=(const ScreenSignals&) = delete;

  int fd() const { return fd_.get(); }
  // 0: none is there.
  int Next();

 private:
  ScreenSignals() = default;

  sigset_t before_;
  UniqueFd fd_;
};

// The whole screen of the terminal at stdout, and the keys of the one at stdin. What was on it is there again
// afterwards, and what is typed echoes again.
// Thread:   one.
// Lifetime: the destructor restores the terminal. Until then nothing else writes to it.
// Failure:  a terminal that is gone makes Draw() fail.
class Screen {
 public:
  struct Size {
    size_t columns, rows;
  };

  static bool IsAvailable();  // Stdout is a terminal that can do this.
  // That of the terminal at stdout now; 100 columns where there is none, or it does not say.
  static Size SizeNow();

  explicit Screen(ScreenSignals& signals);
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // In place of what is there. Lines that do not fit are left out. `dims`: all of it is faint.
  absl::Status Draw(const std::vector<TextLine>& lines, bool dims);

  enum class Event { kTimeout, kReadable, kResized, kQuit };
  // Blocks until `other_fd` can be read (kReadable), the size has changed, a person or a signal wants the end
  // (q, Ctrl-C), or `timeout` has passed. Stops the process for Ctrl-Z.
  Event Wait(int other_fd, absl::Duration timeout);

 private:
  void Enter();
  void Leave();
  void Suspend();

  ScreenSignals& signals_;
  bool reads_keys_ = false;
  termios before_ = {};
};

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_TERMINAL_H_
