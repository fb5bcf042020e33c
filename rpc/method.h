#ifndef HAWSER_RPC_METHOD_H_
#define HAWSER_RPC_METHOD_H_

#include <cstdint>

namespace hawser {

// One method of an interface, as generated code names it. On the wire it is (interface_id, ordinal), Cap'n
// Proto's own names, so an interface evolves by Cap'n Proto's rules: a method keeps its ordinal when it is
// renamed.
struct Method {
  uint64_t interface_id;  // The interface that declares the method, which may be a superclass of the one
                          // called.
  uint16_t ordinal;
  // "kv.capnp:KeyValue.get", where kv.capnp is the name of the schema's file without its folder. For people:
  // error messages and traces. To tell methods apart compare the two above with those of the generated
  // KeyValueStub::kGet. Static storage.
  const char* name;
  // $Hawser.idempotent in the schema: running it twice does no harm, so a call that was already sent is sent
  // again when its connection is lost.
  bool idempotent;
};

// Whether `method` is of a service of Hawser's own: health, introspection, perf and reflection (rpc/hawser/),
// which a server has unless its options turn them off, and HealthWatcher, which a client offers. Interceptors
// and ServerOptions::authorize see these calls like any other: one that refuses what it does not know refuses
// health checks, too.
bool IsBuiltIn(const Method& method);

}  // namespace hawser

#endif  // HAWSER_RPC_METHOD_H_
