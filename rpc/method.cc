#include "hawser/rpc/method.h"

#include <capnp/common.h>

#include <algorithm>
#include <iterator>

#include "hawser/health.capnp.h"
#include "hawser/introspection.capnp.h"
#include "hawser/perf.capnp.h"
#include "hawser/reflection.capnp.h"

namespace hawser {
namespace {

constexpr uint64_t kBuiltIn[] = {
    capnp::typeId<health::Health>(),
    capnp::typeId<health::HealthWatcher>(),
    capnp::typeId<introspection::Introspection>(),
    capnp::typeId<perf::Perf>(),
    capnp::typeId<reflection::Reflection>(),
};

}  // namespace

bool IsBuiltIn(const Method& method) {
  return std::find(std::begin(kBuiltIn), std::end(kBuiltIn), method.interface_id) != std::end(kBuiltIn);
}

}  // namespace hawser
