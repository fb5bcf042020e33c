#include "hawser/observe/method_order.h"

#include <algorithm>
#include <utility>

#include "hawser/observe/histogram.h"
#include "hawser/observe/units.h"

namespace hawser::observe {

std::vector<wire::Method::Reader> ByCalls(capnp::List<wire::Method>::Reader methods, size_t count_max) {
  std::vector<wire::Method::Reader> sorted;
  sorted.reserve(methods.size());
  for (const auto method : methods) sorted.push_back(method);
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::pair(a.getCalls(), a.getRunning()) > std::pair(b.getCalls(), b.getRunning());
  });
  sorted.resize(std::min(sorted.size(), count_max));
  return sorted;
}

std::string PercentileText(wire::Method::Reader method, double percent) {
  const auto latency = method.getLatency();
  if (latency.getCounts().size() == 0) return "";
  return DurationText(PercentileNs(latency.getBoundsNs(), latency.getCounts(), percent));
}

}  // namespace hawser::observe
