#ifndef HAWSER_RPC_LOAD_SCHEMA_H_
#define HAWSER_RPC_LOAD_SCHEMA_H_

#include <capnp/schema-loader.h>

namespace hawser::internal {

// For MethodTable::Interface::load_schema, of a generated interface. In a header of its own, since only what
// implements services includes it.
template <typename Interface>
void LoadSchema(capnp::SchemaLoader& loader) {
  loader.loadCompiledTypeAndDependencies<Interface>();
}

}  // namespace hawser::internal

#endif  // HAWSER_RPC_LOAD_SCHEMA_H_
