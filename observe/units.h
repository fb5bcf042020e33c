#ifndef HAWSER_OBSERVE_UNITS_H_
#define HAWSER_OBSERVE_UNITS_H_

#include <cstdint>
#include <string>

namespace hawser::observe {

// Figures as people read them.
// Thread: any.

// "950 ns", "12.5 us", "3.20 s", "2 h 5 min".
std::string DurationText(int64_t ns);
// "512 B", "1.50 MiB".
std::string BytesText(uint64_t bytes);
// "950", "12.5 k", "3.2 M": where there is no room for each digit.
std::string CountText(uint64_t count);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_UNITS_H_
