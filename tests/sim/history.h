#ifndef HAWSER_TESTS_SIM_HISTORY_H_
#define HAWSER_TESTS_SIM_HISTORY_H_

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace hawser::sim {

// Receives the events of a world, so that a person can read a failing seed. Hosts count from 1.
class History {
 public:
  virtual ~History() = default;
  // `host`: where it happened; 0: in the whole world.
  virtual void Happened(int64_t now_ns, int host, absl::string_view what) = 0;
  // Something that `from` has sent arrives at `to`.
  virtual void Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) = 0;
};

// Prints a line for each event on stdout.
class TextHistory final : public History {
 public:
  void Happened(int64_t now_ns, int host, absl::string_view what) override;
  void Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) override;
};

// A sequence chart: a vertical line for each host, an arrow for each message, time running down. Consecutive
// events have equal distances, whatever time is between them; the times are at the left.
class ChartHistory final : public History {
 public:
  void Happened(int64_t now_ns, int host, absl::string_view what) override;
  void Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) override;

  // Writes SVG. The error contains that of the system.
  absl::Status Write(const std::string& path) const;

 private:
  struct Entry {
    int64_t sent_ns, now_ns;
    int from, to;  // If they are equal, it happened there.
    std::string what;
  };
  std::vector<Entry> entries_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_HISTORY_H_
