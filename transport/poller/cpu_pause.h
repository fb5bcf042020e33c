#ifndef HAWSER_TRANSPORT_POLLER_CPU_PAUSE_H_
#define HAWSER_TRANSPORT_POLLER_CPU_PAUSE_H_

namespace hawser::transport {

// Between two looks of a thread that spins: leaves the core to its other hyperthread for a moment.
inline void CpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_POLLER_CPU_PAUSE_H_
