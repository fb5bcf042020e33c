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
  // At `host`, or to the whole world: 0.
  virtual void Happened(int64_t now_ns, int host, absl::string_view what) = 0;
  // Something that `from` has sent arrives at `to`.
  virtual void Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) = 0;
};

// A line each on stdout.
class TextHistory final : public History {
 public:
  void Happened(int64_t now_ns, int host, absl::string_view what) override;
  void Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) override;
};

// A sequence chart: a vertical line for each host, an arrow for each message, time running down. Equally far
// apart is what follows each other, however long it took: the times stand at the left.
class ChartHistory final : public History {
 public:
  void Happened(int64_t now_ns, int host, absl::string_view what) override;
  void Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) override;

  // As SVG. An error says what the system said.
  absl::Status Write(const std::string& path) const;

 private:
  struct Entry {
    int64_t sent_ns, now_ns;
    int from, to;  // The same: it happened there.
    std::string what;
  };
  std::vector<Entry> entries_;
};

}  // namespace hawser::sim

#endif  // HAWSER_TESTS_SIM_HISTORY_H_
