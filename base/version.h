#ifndef HAWSER_BASE_VERSION_H_
#define HAWSER_BASE_VERSION_H_

namespace hawser {

// The one place that has the version of Hawser. A release drops "-dev"; the commit after it has that of the
// next one.
inline constexpr char kVersion[] = "0.1.0-dev";

}  // namespace hawser

#endif  // HAWSER_BASE_VERSION_H_
