#ifndef HAWSER_TOOLS_HAWSER_REFLECTION_H_
#define HAWSER_TOOLS_HAWSER_REFLECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/channel.h"
#include "hawser/tools/hawser/schemas.h"

namespace hawser::tool {

inline constexpr size_t kServicesMax = 10'000;

// A service as the server lists it. Names are as the server sent them: escape them.
struct ServiceInfo {
  struct Method {
    std::string name;
    uint16_t ordinal;
    bool idempotent;
  };
  std::string name;  // "kv.capnp:KeyValue"
  uint64_t interface_id;
  bool has_schema;
  std::vector<Method> methods;
};

// What the server's reflection service says. The errors say what was asked of which server and, if it has no such service,
// what to do.
absl::StatusOr<std::vector<ServiceInfo>> ListServices(const std::shared_ptr<Channel>& channel);
// The schemas of all services that have some. With `method` ("KeyValue.get"): of those alone whose name ends with what is
// before its last dot, if there are any; FailedPrecondition: these have none.
absl::StatusOr<std::unique_ptr<Schemas>> FetchSchemas(const std::shared_ptr<Channel>& channel,
                                                      absl::string_view method = {});

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_REFLECTION_H_
