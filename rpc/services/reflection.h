#ifndef HAWSER_RPC_SERVICES_REFLECTION_H_
#define HAWSER_RPC_SERVICES_REFLECTION_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/reflection.rpc.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/server_extension.h"

namespace hawser::internal {

// The service of rpc/hawser/reflection.capnp: says what is in a MethodTable.
// Thread:   any.
// Lifetime: that of the server whose table it is.
class Reflection final : public ServerExtension, public reflection::ReflectionService {
 public:
  // `methods` outlives this. Once a server runs it does not change.
  explicit Reflection(const MethodTable& methods);
  ~Reflection() override;

  absl::Status List(ServerContext& context, reflection::Reflection::ListParams::Reader request,
                    reflection::Reflection::ListResults::Builder reply) override;
  absl::Status Schema(ServerContext& context, reflection::Reflection::SchemaParams::Reader request,
                      reflection::Reflection::SchemaResults::Builder reply) override;

  // ServerExtension
  uint64_t interface_id() const override;
  bool on_poller() const override { return false; }  // To load schemas takes long.
  void Close(absl::Time) override {}

 private:
  struct Nodes;

  const Nodes& NodesOf(uint64_t interface_id, const MethodTable::Interface& interface);

  const MethodTable& methods_;
  absl::Mutex mutex_;
  // Loaded when they are first asked for, and kept: a client that asks again and again costs no more than the
  // answers.
  std::map<uint64_t, std::unique_ptr<const Nodes>> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVICES_REFLECTION_H_
