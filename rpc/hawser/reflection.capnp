@0xe1f20b7a6c94d385;
# What a server serves, for programs that know its address and not its schemas. Every Server has this service unless
# ServerOptions::reflection is false.
#
# A client loads the nodes of an interface into a capnp::SchemaLoader and calls its methods with Cap'n Proto's dynamic API
# (rpc/dynamic_call.h). Nodes come from a peer, and the loader of Cap'n Proto 0.9 takes some with which a message is built, read or
# printed outside of its memory. So the client checks of each node, before it loads it:
#  - how many nodes there are, and how many bytes and elements of lists they have: the loader keeps several times as much;
#  - each text in it: at one that is malformed the loader overflows the stack;
#  - that fields and tags of unions lie inside their struct, in 64 bits: the loader computes bits * (offset + 1) in 32;
#  - that a union has as many fields as it says;
#  - how many superclasses an interface has and how many scopes a brand: the loader goes through them at each reference;
#  - names, if they are printed for people or compilers: they are bytes of the peer's choice, and displayNamePrefixLength may be
#    larger than the name.
# It checks of all nodes together, before it builds or reads a message:
#  - that scopes form trees;
#  - that each group is the type of one field, of the struct that is its scope, and not larger than that struct; and that nothing
#    else refers to a group. Otherwise a group may contain itself, or lie outside of the message.
# tools/hawser/schemas.h does all of that. A list of methods, too, may have elements without size, and long names.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
using Schema = import "/capnp/schema.capnp";
$Cxx.namespace("hawser::reflection");

interface Reflection {
  list @0 () -> (services :List(Service)) $Hawser.idempotent;
  # Sorted by name. A service that extends others is listed beside them.

  schema @1 (interfaceId :UInt64, skip :UInt32 = 0) -> (nodes :List(Schema.Node), total :UInt32) $Hawser.idempotent;
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
