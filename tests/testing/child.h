#ifndef HAWSER_TESTS_TESTING_CHILD_H_
#define HAWSER_TESTS_TESTING_CHILD_H_

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

// Children made by fork() that do not call exec().
namespace hawser {

// Runs `body` in a child. True: it returned true there within half a minute.
inline bool InChild(const std::function<bool()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // Ends a child that hangs.
    _exit(body() ? 0 : 1);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A child that has all file descriptors of its parent, and does nothing. It ends when this object is
// destroyed.
class IdleChild {
 public:
  IdleChild() {
    if (pipe2(pipe_, O_CLOEXEC) != 0) abort();
    child_ = fork();
    if (child_ < 0) abort();
    if (child_ > 0) return;
    close(pipe_[1]);
    char none;
    [[maybe_unused]] const ssize_t n = read(pipe_[0], &none, 1);
    _exit(0);
  }
  ~IdleChild() {
    close(pipe_[1]);
    close(pipe_[0]);
    waitpid(child_, nullptr, 0);
  }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

 private:
  int pipe_[2];
  pid_t child_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_CHILD_H_
