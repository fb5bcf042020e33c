@0xe1f20b7a6c94d385;
# What a server serves, for programs that know its address and not its schemas. Every Server has this service unless
# ServerOptions::reflection is false.
#
# A client loads the nodes of an interface into a capnp::SchemaLoader and calls its methods with Cap'n Proto's dynamic API
# (rpc/dynamic_call.h). Nodes come from a peer, so the client checks them before it loads them: their number and their bytes;
# each text in them, since the loader of Cap'n Proto 0.9 overflows the stack on one that is malformed; and the groups, which it
# does not check for circles. tools/hawser/schemas.h does all of that.

using Cxx = import "/capnp/c++.capnp";
using Schema = import "/capnp/schema.capnp";
$Cxx.namespace("hawser::reflection");

interface Reflection {
  list @0 () -> (services :List(Service));
  # Sorted by name. A service that extends others is listed beside them.

  schema @1 (interfaceId :UInt64, skip :UInt32 = 0) -> (nodes :List(Schema.Node), total :UInt32);
  # The interface and everything that it refers to: superclasses, parameters, results and the types in them, without
  # annotations' declarations, files and constants. Sorted by id. `total` is how many there are. An answer has those behind
  # the first `skip`, at least one if there is one, and about 256 KiB at most: ask again with what there is so far.
  # NotFound: there is no such interface. FailedPrecondition: its methods were added by hand, without a schema.
}

struct Service {
  name @0 :Text;  # "kv.capnp:KeyValue".
  interfaceId @1 :UInt64;
  hasSchema @2 :Bool;
  methods @3 :List(Method);  # Its own, by ordinal; inherited ones are those of the services that it extends.

  struct Method {
    name @0 :Text;  # "get".
    ordinal @1 :UInt16;
    idempotent @2 :Bool;
  }
}
