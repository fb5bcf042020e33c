#ifndef HAWSER_TESTS_CHAOS_WORKERS_H_
#define HAWSER_TESTS_CHAOS_WORKERS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace hawser::chaos {

// The workers of a client, and their threads: all of them do one thing at a time.
// Thread: one.
template <typename Worker>
class Workers {
 public:
  // `stop` ends what they do. It outlives the workers.
  explicit Workers(std::atomic<bool>& stop) : stop_(stop) {}
  Workers(const Workers&) = delete;

  void Add(std::unique_ptr<Worker> worker) { workers_.push_back(std::move(worker)); }
  size_t size() const { return workers_.size(); }

  // Each worker does it, on a thread of its own. None does anything else.
  void Start(void (Worker::*what)()) {
    stop_ = false;
    for (auto& worker : workers_) threads_.emplace_back(what, worker.get());
  }
  // Waits until each has done it. What goes on until `stop` ends now.
  void Stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  std::atomic<bool>& stop_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::thread> threads_;
};

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_WORKERS_H_
