#ifndef HAWSER_BENCH_HAND_OFF_H_
#define HAWSER_BENCH_HAND_OFF_H_

namespace hawser::bench {

// The floor of threads that wait: `threads` of them, each of which puts itself into a queue and sleeps until
// the one thread that empties the queue wakes it. Returns how often a second one is woken, over `count`
// times. No call can be made by a thread that waits for its answer without such a hand-off, unless that
// thread itself receives it.
double HandOffRate(int threads, int count);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_HAND_OFF_H_
