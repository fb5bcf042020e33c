#ifndef HAWSER_TRANSPORT_READ_BUDGET_H_
#define HAWSER_TRANSPORT_READ_BUDGET_H_

#include <cstdint>
#include <vector>

namespace hawser::transport {

class PullQueue;

// The READ bytes that one poller may have outstanding over all its connections, so that one bulk caller
// cannot starve small calls. Connections that find it used up wait in line and take turns, and while some do
// nobody passes them: a long READ is not starved by short ones. Thread: on the poller.
class ReadBudget {
 public:
  explicit ReadBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // False: used up. `queue` was put in line, and is pumped when some is returned. A first READ always passes.
  bool Take(uint64_t bytes, PullQueue* queue);
  void Return(uint64_t bytes);
  // `queue` goes away.
  void Forget(PullQueue* queue);

  uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  const uint64_t bytes_max_;
  uint64_t taken_bytes_ = 0;
  std::vector<PullQueue*>
      waiting_;                  // Each at most once, the first first. A handful: bulk callers of one poller.
  PullQueue* served_ = nullptr;  // Whose turn it is, inside Return(); the first in line.
  bool served_took_ = false;     // It has had some,
  bool served_short_ = false;    // and has asked for more than there is.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_READ_BUDGET_H_
