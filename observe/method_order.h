#ifndef HAWSER_OBSERVE_METHOD_ORDER_H_
#define HAWSER_OBSERVE_METHOD_ORDER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// The methods with the most calls first; those with as many stay in their order. `count_max` at most.
// Thread: any.
std::vector<wire::Method::Reader> ByCalls(capnp::List<wire::Method>::Reader methods, size_t count_max);

// The latency that `percent` of its calls did not exceed, as text. Empty: it was not called.
std::string PercentileText(wire::Method::Reader method, double percent);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_METHOD_ORDER_H_
