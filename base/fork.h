#ifndef HAWSER_BASE_FORK_H_
#define HAWSER_BASE_FORK_H_

#include <atomic>
#include <cstdint>

// How objects learn that their process is a child made by fork(). Such a child has copies of its parent's
// objects, and none of its threads. A mutex may be locked there for good, if another thread held it during
// fork(). Sockets, epoll sets and timers are the same ones as the parent's, and RDMA devices serve the parent
// only. So what was made before fork() is left alone in the child: it is not used, and it is leaked rather
// than destroyed.
namespace hawser {

// Notes the process that it is made in. A copy notes the same.
// Thread:  any.
// Failure: clone(2) and vfork(2), called directly, are not noticed: they run no pthread_atfork(3) handler.
class ForkMark {
 public:
  ForkMark();
  // A mark for which every process is a child: one test then finds the fork, and another rare case besides.
  static ForkMark OfNoProcess() { return ForkMark(UINT64_MAX); }

  // This process is a child of the one in which the mark was made, or a child of a child. Costs one load: it
  // is asked at every post, where getpid(2) would be a system call.
  bool in_child() const { return generation.load(std::memory_order_relaxed) != made_in_; }

 private:
  explicit ForkMark(uint64_t made_in) : made_in_(made_in) {}

  // fork() calls on the way to this process, counted in the children.
  static std::atomic<uint64_t> generation;

  uint64_t made_in_;
};

// A T for each process: a child made by fork() gets a new one at its first use, and leaks its parent's.
// Constant-initialized, for static variables.
// Thread:   any. `T()` may run on two threads at once, one of the two is destroyed: it starts no thread.
// Lifetime: the T is never destroyed otherwise.
template <typename T>
class PerProcess {
 public:
  constexpr PerProcess() = default;

  T& Get() {
    Made* made = made_.load(std::memory_order_acquire);
    while (made == nullptr || made->mark.in_child()) {
      Made* const own = new Made;
      if (made_.compare_exchange_strong(made, own, std::memory_order_acq_rel)) return own->value;
      delete own;
    }
    return made->value;
  }

 private:
  struct Made {
    ForkMark mark;
    T value;
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace hawser

#endif  // HAWSER_BASE_FORK_H_
