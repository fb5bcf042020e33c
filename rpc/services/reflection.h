#ifndef HAWSER_RPC_SERVICES_REFLECTION_H_
#define HAWSER_RPC_SERVICES_REFLECTION_H_

#include <cstdint>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/hawser/reflection.capnp.h"
#include "hawser/rpc/service.h"

namespace hawser::internal {

// The service of rpc/hawser/reflection.capnp: tells what is in a MethodTable.
// Thread:   any.
// Lifetime: that of the server whose table it is.
class Reflection final : public Service {
 public:
  // `methods` outlives this. Once a server runs it does not change.
  explicit Reflection(const MethodTable& methods);
  ~Reflection() override;

  void AddMethods(MethodTable& table) override;

 private:
  using Wire = reflection::Reflection;
  struct Nodes;

  void List(Wire::ListResults::Builder reply) const;
  absl::Status Schema(Wire::SchemaParams::Reader request, Wire::SchemaResults::Builder reply);
  const Nodes& NodesOf(uint64_t interface_id, const MethodTable::Interface& interface);

  const MethodTable& methods_;
  absl::Mutex mutex_;
  // Loaded when they are first asked for, and kept: a client that asks again and again costs no more than the
  // answers.
  std::map<uint64_t, std::unique_ptr<const Nodes>> nodes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVICES_REFLECTION_H_
