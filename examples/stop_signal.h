#ifndef EXAMPLES_STOP_SIGNAL_H_
#define EXAMPLES_STOP_SIGNAL_H_

namespace examples {

// Lets a thread wait for SIGTERM and SIGINT. A signal handler may call almost no functions, and not
// Server::Shutdown(); a thread that has waited may call any function.
// Lifetime: make it before any thread is started, so that no other thread gets the signals.
class StopSignal {
 public:
  StopSignal();

  // Blocks until one of the signals arrives. The next one ends the process as usual, even if it hangs.
  void Wait();
};

}  // namespace examples

#endif  // EXAMPLES_STOP_SIGNAL_H_
