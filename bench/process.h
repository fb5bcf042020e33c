#ifndef HAWSER_BENCH_PROCESS_H_
#define HAWSER_BENCH_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace hawser::bench {

// Where the two sides run. The kernel's cost of waking a thread differs much between the two, so each is
// measured.
enum class Pin {
  kOneCore,   // Client and server share core 0.
  kTwoCores,  // The client has core 0, the server core 1.
  kAnyCore,   // The kernel decides.
};

const char* Name(Pin pin);

// "sleep:1", "spin:2", "adaptive:any": how both sides wait, and the cores that they have together. Exits with
// a message that names `flag` if `text` is nothing of the kind.
struct Placement {
  std::string mode;
  Pin pin;
};
Placement ParsePlacement(const std::string& flag, const std::string& text);

// Runs the calling thread, and those that it makes from now on, on the client's or the server's core. Does
// nothing on a machine with one core.
void PinTo(Pin pin, bool server);

// CPU seconds, user and system, of a process so far. 0 if it is gone.
double CpuSeconds(pid_t pid);

// Resident memory in bytes.
double ResidentBytes(pid_t pid);

// Bytes that malloc has allocated in this process and that have not been freed, over all threads.
uint64_t HeapBytes();

// The other side: this same program in a process of its own, with `--serve=WHAT` and further arguments, which
// prints one line (where it listens) when it is ready. Killed by the destructor.
class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& arguments);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::string address_;
};

// CPU seconds, of both sides.
struct CpuUse {
  double client_seconds = 0;
  double server_seconds = 0;
};

// Adds to `use` what this process and `server` use while it lives.
class CpuMeter {
 public:
  CpuMeter(pid_t server, CpuUse& use);
  ~CpuMeter();
  CpuMeter(const CpuMeter&) = delete;
  CpuMeter& operator=(const CpuMeter&) = delete;

 private:
  const pid_t server_;
  CpuUse& use_;
  const double client_start_, server_start_;
};

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_PROCESS_H_
