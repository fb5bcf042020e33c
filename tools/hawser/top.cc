#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/base/steady_now.h"
#include "hawser/base/unique_fd.h"
#include "hawser/rpc/log.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/tools/hawser/figures.h"
#include "hawser/tools/hawser/figures_text.h"
#include "hawser/tools/hawser/introspection.h"
#include "hawser/tools/hawser/terminal.h"

namespace hawser::tool {
namespace {

// A server takes no snapshot more often.
constexpr absl::Duration kIntervalMin = absl::Milliseconds(250);
// Between attempts to reach a server that is gone.
constexpr absl::Duration kRetry = absl::Seconds(1);
// Where no terminal gives another width.
constexpr size_t kColumns = 100;

// The answer of the one call that is under way, for a thread that also waits for keys.
class Answer {
 public:
  static absl::StatusOr<std::shared_ptr<Answer>> New() {
    auto answer = std::make_shared<Answer>();
    answer->event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!answer->event_.is_open()) return absl::ErrnoToStatus(errno, "eventfd");
    return answer;
  }
  // Can be read while there is an answer.
  int fd() const { return event_.get(); }
  void Put(absl::StatusOr<OwnSnapshot> snapshot) {
    absl::MutexLock lock(&mutex_);
    snapshot_.emplace(std::move(snapshot));
    eventfd_write(event_.get(), 1);
  }
  std::optional<absl::StatusOr<OwnSnapshot>> Take() {
    absl::MutexLock lock(&mutex_);
    eventfd_t count;
    eventfd_read(event_.get(), &count);
    return std::exchange(snapshot_, std::nullopt);
  }

 private:
  UniqueFd event_;
  absl::Mutex mutex_;
  std::optional<absl::StatusOr<OwnSnapshot>> snapshot_ ABSL_GUARDED_BY(mutex_);
};

// Whether a later call may have an answer.
bool MayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
}

class Top : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "top", "", "shows what the server is doing, again and again",
        "Asks for a snapshot of the server at each interval and shows what happened in between: calls, "
        "errors and bytes a second, and the times of the calls that ended (p50: half of them took no "
        "longer), in all and of each method, the busiest first; where the time of the server's threads went; "
        "connections, memory, refused peers, and the calls that are in flight, without those for snapshots. "
        "A server answers clients on its own machine, at a loopback address; others if its "
        "ServerOptions::introspection is kEveryone.\n"
        "\n"
        "On a terminal it redraws in place until q or Ctrl-C. If the connection is lost it says so, keeps "
        "the last figures, and goes on when the server is back; a new one is counted from its start.\n"
        "\n"
        "Elsewhere, and with --json, it prints a block, or an object in one line, for each interval: the "
        "first one after the first interval. Times in JSON are microseconds.\n"
        "\n"
        "--count counts by the clock of this machine: intervals in which no new snapshot of the same server "
        "came, because the connection was lost, say, or the clock of the server stands still, count as well, "
        "and have no block. The exit status is 1 if that is so at the end.",
        "hawser top --target=tcp://localhost:7470\n"
        "hawser top --target=tcp://localhost:7470 --interval=5s --count=12 --json"};
    return kHelp;
  }

  void AddFlags(Flags& flags) override {
    flags.Duration("interval", "between two snapshots, 250ms at least (default 1s)", &interval_);
    flags.Number("count", "ends after so many intervals", 1, UINT64_MAX, &left_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    if (interval_ < kIntervalMin) {
      return absl::InvalidArgumentError(absl::StrCat("--interval is ", absl::FormatDuration(interval_),
                                                     ", and a server takes no snapshot within ",
                                                     absl::FormatDuration(kIntervalMin), " of another"));
    }
    return TakeWords(words, {}, {});
  }

  absl::StatusOr<int> Run(const Session& session) override {
    std::unique_ptr<ScreenSignals> signals;
    if (!session.json && Screen::IsAvailable()) {
      auto taken = ScreenSignals::Take();
      if (!taken.ok()) return taken.status();
      signals = *std::move(taken);
      // Lines of the log would spoil the screen, which says what becomes of the connection.
      SetLogSink([](LogSeverity, absl::string_view) {});
    }
    auto answer = Answer::New();
    if (!answer.ok()) return answer.status();
    ChannelOptions options = ForSnapshots();
    options.backoff_max = kRetry;
    const auto channel = session.StartToConnect(std::move(options));
    if (!channel.ok()) return channel.status();

    // Without a screen yet: an error before the first answer is to stay visible.
    const auto ask = [&] {
      FetchSnapshot(*channel, [to = *answer](auto snapshot) { to->Put(std::move(snapshot)); });
    };
    ask();
    auto first = WaitForFirst(**answer, signals.get());
    if (!first.has_value()) return 1;  // Interrupted.
    if (!first->ok()) {
      return (*channel)->state() == ChannelState::kReady ? first->status()
                                                         : session.Unreachable(first->status());
    }
    // Its destructor restores the terminal, before main() prints an error.
    std::unique_ptr<Screen> screen;
    if (signals != nullptr) screen = std::make_unique<Screen>(*signals);
    screen_ = screen.get();
    const absl::Status status = Follow(session, **answer, ask, **std::move(first));
    if (!status.ok()) return status;
    return 0;
  }

 private:
  // Empty: a signal asks for the end.
  static std::optional<absl::StatusOr<OwnSnapshot>> WaitForFirst(Answer& answer, ScreenSignals* signals) {
    while (true) {
      pollfd fds[] = {{answer.fd(), POLLIN, 0}, {signals != nullptr ? signals->fd() : -1, POLLIN, 0}};
      poll(fds, 2, -1);
      if (fds[0].revents != 0) return answer.Take();
      if (fds[1].revents == 0) continue;
      const int signal = signals->Next();
      if (signal == SIGTSTP) raise(SIGSTOP);
      if (signal != SIGWINCH && signal != SIGTSTP && signal != 0) return std::nullopt;
    }
  }

  template <typename Ask>
  absl::Status Follow(const Session& session, Answer& answer, const Ask& ask, OwnSnapshot first) {
    last_.emplace(std::move(first));
    figures_ = FiguresOf(last_->Get());
    if (absl::Status drawn = Draw(session); !drawn.ok()) return drawn;
    counted_at_ = SteadyNow();
    absl::Duration next = counted_at_ + interval_;
    bool asked = false;
    while (left_ > 0) {
      const absl::Duration now = SteadyNow();
      if (!asked && now >= next) {
        ask();
        asked = true;
        asked_at_ = now;
        next = now + interval_;
      }
      switch (Wait(answer, asked ? absl::Hours(1) : next - now)) {
        case Screen::Event::kQuit:
          return absl::OkStatus();
        case Screen::Event::kTimeout:
          break;
        case Screen::Event::kResized:
          if (absl::Status drawn = Draw(session); !drawn.ok()) return drawn;
          break;
        case Screen::Event::kReadable: {
          auto snapshot = answer.Take();
          if (!snapshot.has_value()) break;
          asked = false;
          if (!snapshot->ok()) next = std::min(next, SteadyNow() + kRetry);
          if (absl::Status status = OnAnswer(session, *std::move(snapshot)); !status.ok()) return status;
          break;
        }
      }
    }
    return lost_;
  }

  // Counts the intervals that have passed by `now` without a new snapshot. One of them may go on still: an
  // answer comes a little later than another, and a server gives the same snapshot to two that ask soon after
  // each other.
  void CountWithout(absl::Duration now) {
    absl::Duration beyond;
    const int64_t passed = absl::IDivDuration(now - counted_at_, interval_, &beyond) - 1;
    if (passed <= 0) return;
    counted_at_ += passed * interval_;
    left_ -= std::min(left_, static_cast<uint64_t>(passed));
  }

  // There are no figures of now.
  absl::Status Lose(const Session& session, absl::Status why, absl::string_view what) {
    const bool is_news = lost_.ok();
    lost_ = std::move(why);
    lost_line_ = absl::StrCat(what, ": ", ForPeople(lost_), "; trying again");
    if (screen_ == nullptr && is_news) std::cerr << "hawser top: " << lost_line_ << std::endl;
    return Draw(session);
  }

  Screen::Event Wait(const Answer& answer, absl::Duration timeout) {
    if (screen_ != nullptr) return screen_->Wait(answer.fd(), timeout);
    pollfd fds[] = {{answer.fd(), POLLIN, 0}};
    const auto ms = static_cast<int>(
        absl::ToInt64Milliseconds(std::min(timeout, absl::Hours(1)) + absl::Microseconds(999)));
    return poll(fds, 1, ms) > 0 ? Screen::Event::kReadable : Screen::Event::kTimeout;
  }

  // Not OK: there is no use in going on.
  absl::Status OnAnswer(const Session& session, absl::StatusOr<OwnSnapshot> snapshot) {
    if (!snapshot.ok()) {
      if (!MayPass(snapshot.status())) return snapshot.status();
      CountWithout(SteadyNow());
      const char* const what = absl::IsUnavailable(snapshot.status()) ? "connection lost" : "no answer";
      return Lose(session, snapshot.status(), what);
    }
    if (last_->Get().getTakenUnixNs() == snapshot->Get().getTakenUnixNs()) {
      // When it was asked for, and not when it came: what counts is how old the snapshot was then.
      const uint64_t left = left_;
      CountWithout(asked_at_);
      if (left == left_) return Draw(session);
      return Lose(session,
                  absl::UnavailableError(absl::StrCat("the snapshots of ", session.target,
                                                      " have the same time again and again; does its clock "
                                                      "stand still?")),
                  "no new snapshot");
    }
    lost_ = absl::OkStatus();
    lost_line_.clear();
    const bool is_same = IsSameServer(last_->Get(), snapshot->Get());
    figures_ = is_same ? FiguresOf(snapshot->Get(), last_->Get()) : FiguresOf(snapshot->Get());
    last_ = *std::move(snapshot);
    if (!is_same) {
      const uint64_t left = left_;
      CountWithout(asked_at_);
      // The exit status, if no snapshot of this server follows.
      if (left != left_) {
        lost_ = absl::UnavailableError(absl::StrCat("another server answers at ", session.target));
      }
      return Draw(session);
    }
    counted_at_ = SteadyNow();
    --left_;
    if (screen_ != nullptr) return Draw(session);
    if (session.json) {
      std::cout << FiguresAsJson(figures_) << std::endl;
    } else {
      const absl::Time taken = absl::FromUnixNanos(figures_.taken_unix_ns);
      std::cout << absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", taken, absl::UTCTimeZone()) << '\n';
      for (const TextLine& line : TopLines(figures_, last_->Get(), session.target, kColumns, SIZE_MAX)) {
        std::cout << line.text << '\n';
      }
      std::cout << std::endl;
    }
    return std::cout ? absl::OkStatus() : absl::UnavailableError("cannot write to stdout");
  }

  absl::Status Draw(const Session& session) {
    if (screen_ == nullptr) return absl::OkStatus();
    const Screen::Size size = Screen::SizeNow();
    const size_t columns = size.columns - 1;
    std::vector<TextLine> lines;
    if (!lost_line_.empty()) lines.push_back({Fit(lost_line_, columns)});
    for (TextLine& line :
         TopLines(figures_, last_->Get(), session.target, columns, size.rows - lines.size())) {
      lines.push_back(std::move(line));
    }
    return screen_->Draw(lines, !lost_line_.empty());
  }

  absl::Duration interval_ = absl::Seconds(1);
  uint64_t left_ = UINT64_MAX;  // Intervals that are still to come.
  absl::Duration counted_at_;   // The end of the last one that has counted.
  absl::Duration asked_at_;     // When the last answer was asked for.

  Screen* screen_ = nullptr;  // Null: it prints.
  std::optional<OwnSnapshot> last_;
  Figures figures_;        // From the snapshot before last_ to it.
  absl::Status lost_;      // Why there are no figures of now.
  std::string lost_line_;  // The same, as it is shown.
};

}  // namespace

std::unique_ptr<Command> NewTop() { return std::make_unique<Top>(); }

}  // namespace hawser::tool
