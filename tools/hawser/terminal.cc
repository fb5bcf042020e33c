#include "hawser/tools/hawser/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace hawser::tool {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGTSTP};

// Control sequences of ECMA-48, and of xterm (those with '?'), which every terminal of today knows.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l";  // The alternate screen, without a cursor.
constexpr char kLeave[] = "\x1b[0m\x1b[?25h\x1b[?1049l";
constexpr char kHome[] = "\x1b[H";
constexpr char kHeading[] = "\x1b[7m";
constexpr char kFaint[] = "\x1b[2m";
constexpr char kPlain[] = "\x1b[0m";
constexpr char kClearLine[] = "\x1b[K";
constexpr char kClearBelow[] = "\x1b[J";

// A size that no terminal has: one that says so is wrong.
constexpr size_t kSideMax = 1000;

sigset_t AllSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (int each : kSignals) sigaddset(&set, each);
  return set;
}

bool WriteAll(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EAGAIN) {  // Another program with this terminal has made it so.
      pollfd out = {STDOUT_FILENO, POLLOUT, 0};
      poll(&out, 1, -1);
    } else if (written < 0 && errno != EINTR) {
      return false;
    }
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, written)));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScreenSignals>> ScreenSignals::Take() {
  auto taken = std::unique_ptr<ScreenSignals>(new ScreenSignals());
  const sigset_t set = AllSignals();
  pthread_sigmask(SIG_BLOCK, &set, &taken->before_);
  taken->fd_.Reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!taken->fd_.is_open()) return absl::ErrnoToStatus(errno, "signalfd");
  return taken;
}

ScreenSignals::~ScreenSignals() {
  while (Next() != 0) {  // What came meanwhile has been obeyed, or asks for the end that is coming.
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int ScreenSignals::Next() {
  signalfd_siginfo info;
  return fd_.is_open() && read(fd_.get(), &info, sizeof(info)) == sizeof(info)
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

bool Screen::IsAvailable() {
  const char* const kind = std::getenv("TERM");
  return isatty(STDOUT_FILENO) != 0 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
}

Screen::Size Screen::SizeNow() {
  constexpr Size kDefault = {100, 24};
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return kDefault;
  return {std::min<size_t>(size.ws_col, kSideMax), std::min<size_t>(size.ws_row, kSideMax)};
}

Screen::Screen(ScreenSignals& signals) : signals_(signals) {
  reads_keys_ = isatty(STDIN_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before_) == 0;
  Enter();
}

Screen::~Screen() { Leave(); }

void Screen::Enter() {
  if (reads_keys_) {
    termios keys = before_;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C and Ctrl-Z stay signals.
    keys.c_cc[VMIN] = 0;
    keys.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
  }
  WriteAll(kEnter);
}

void Screen::Leave() {
  // First, so that the terminal is as it was once it has shown its own screen again.
  if (reads_keys_) tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  WriteAll(kLeave);
}

void Screen::Suspend() {
  Leave();
  raise(SIGSTOP);
  Enter();
}

absl::Status Screen::Draw(const std::vector<TextLine>& lines, bool dims) {
  const Size size = SizeNow();
  // Without clearing all of it first, so that nothing flickers. The last column stays free: what a terminal
  // does behind it differs.
  std::string text = kHome;
  const size_t shown = std::min(lines.size(), size.rows);
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, dims ? kFaint : "", lines[i].is_heading ? kHeading : "", lines[i].text, kPlain,
                    kClearLine, i + 1 < size.rows ? "\r\n" : "");
  }
  if (shown < size.rows) text += kClearBelow;
  return WriteAll(text) ? absl::OkStatus() : absl::ErrnoToStatus(errno, "cannot write to the terminal");
}

Screen::Event Screen::Wait(int other_fd, absl::Duration timeout) {
  pollfd fds[] = {
      {signals_.fd(), POLLIN, 0}, {other_fd, POLLIN, 0}, {reads_keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
  const int ms = static_cast<int>(absl::ToInt64Milliseconds(
      std::clamp(timeout, absl::ZeroDuration(), absl::Hours(1)) + absl::Microseconds(999)));
  if (poll(fds, 3, ms) <= 0) return Event::kTimeout;
  bool resized = false;
  for (int signal; (signal = signals_.Next()) != 0;) {
    if (signal != SIGWINCH && signal != SIGTSTP) return Event::kQuit;
    if (signal == SIGTSTP) Suspend();
    resized = true;
  }
  if (fds[2].revents != 0) {
    char keys[64];
    const ssize_t count = read(STDIN_FILENO, keys, sizeof(keys));
    if (count <= 0) return Event::kQuit;  // The terminal is gone.
    if (std::any_of(keys, keys + count, [](char key) { return key == 'q' || key == 'Q' || key == '\x03'; })) {
      return Event::kQuit;
    }
  }
  if (resized) return Event::kResized;
  return fds[1].revents != 0 ? Event::kReadable : Event::kTimeout;
}

}  // namespace hawser::tool
