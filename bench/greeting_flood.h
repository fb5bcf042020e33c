#ifndef HAWSER_BENCH_GREETING_FLOOD_H_
#define HAWSER_BENCH_GREETING_FLOOD_H_

#include <cstddef>
#include <string>

#include "absl/time/time.h"

namespace hawser::bench {

// `greetings` strangers greet the server, spread evenly over `time`, all from one address. Each then stays
// silent until the limit of its kind. Meanwhile honest clients connect, one after the other; each sends
// `put_bytes` once and leaves. Prints what both took. False: an honest client needed more
// than a second to connect, or failed.
bool FloodWithGreetings(int greetings, absl::Duration time, size_t put_bytes, const std::string& mode);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_GREETING_FLOOD_H_
