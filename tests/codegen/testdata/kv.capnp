@0xa7c3f2b1d0e49586;
# An ordinary service: what most generated code looks like.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";

$Cxx.namespace("acme::kv");

struct Value {
  bytes @0 :Data;
  version @1 :UInt64;
}

interface KeyValue {
  # A map from names to values.
  #
  # It lives as long as the server; nothing is written to C:\kv\

  get @0 (key :Text) -> (value :Value) $Hawser.idempotent;
  # NotFound if nobody has set the key.

  set @2 SetRequest -> (version :UInt64);
  # Sets a key, always or if it has a certain version.

  list @1 (prefix :Text, after :Text, limit :UInt32 = 100, versions :Bool, deleted :Bool)
      -> (entries :List(Entry), more :Bool) $Hawser.idempotent;

  clear @3 () -> ();

  struct SetRequest {
    key @0 :Text;
    value @1 :Value;
    only :union {
      always @2 :Void;
      ifVersion @3 :UInt64;
    }
  }

  struct Entry {
    key @0 :Text;
    version @1 :UInt64;
  }
}
