#ifndef EXAMPLES_STOP_SIGNAL_H_
#define EXAMPLES_STOP_SIGNAL_H_

namespace examples {

// SIGTERM and SIGINT as something to wait for. A signal handler may call almost nothing, certainly not
// Server::Shutdown(); a thread that was waiting may call everything.
// Lifetime: make it before any thread is started, so that no other thread gets the signals.
class StopSignal {
 public:
  StopSignal();

  // Blocks until one of them comes. The next one ends the process as usual, so one that hangs can be ended.
  void Wait();
};

}  // namespace examples

#endif  // EXAMPLES_STOP_SIGNAL_H_
