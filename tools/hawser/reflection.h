#ifndef HAWSER_TOOLS_HAWSER_REFLECTION_H_
#define HAWSER_TOOLS_HAWSER_REFLECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/options.h"
#include "hawser/tools/hawser/schemas.h"

namespace hawser::tool {

inline constexpr size_t kServicesMax = 10'000;
// In all services together. A server can send methods that take no bytes.
inline constexpr size_t kMethodsMax = 100'000;
// The largest message that is taken from a server: ReflectionOptions(). An honest server sends schemas in
// pieces of 256 KiB.
inline constexpr uint64_t kReflectionBytesMax = 4 << 20;

// A service as the server lists it. Names are as the server sent them, of at most kNameBytesMax: escape them.
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

// For the channel that the functions below take. With its limit on reading (ReadLimits), which counts
// elements of no size, too, reading an answer takes tens of milliseconds at most, whatever it has.
ChannelOptions ReflectionOptions();

// What the server's reflection service says. The errors say what was asked of which server and, if it has no
// such service, what to do. ResourceExhausted: more than the limits above. DeadlineExceeded: `deadline` is
// that of all calls together, because a server can say that there is more as often as it likes.
absl::StatusOr<std::vector<ServiceInfo>> ListServices(const std::shared_ptr<Channel>& channel,
                                                      absl::Time deadline);
// The schemas of all services that have some; Schemas::Check() was OK. With `method` ("KeyValue.get"): of
// those alone whose name ends with what is before its last dot, if there are any; FailedPrecondition: these
// have none.
absl::StatusOr<std::unique_ptr<Schemas>> FetchSchemas(const std::shared_ptr<Channel>& channel,
                                                      absl::Time deadline, absl::string_view method = {});

}  // namespace hawser::tool

#endif  // HAWSER_TOOLS_HAWSER_REFLECTION_H_
