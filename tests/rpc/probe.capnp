@0xd6a2c1b59a0f4e83;
# What the tests call.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("hawser::probe");

interface Probe {
  echo @0 (data :Data) -> (data :Data);
  act @1 (number :UInt64) -> (number :UInt64);
  # What a test wants it to do.
  actAgain @2 (number :UInt64) -> (number :UInt64) $Hawser.idempotent;
  # Likewise.
  depth @3 Nest -> (depth :UInt32);
  # How deep the handler got.
}

interface Listener {
  # What a client offers to the server.
  notify @0 (number :UInt64) -> (number :UInt64);
}

interface Unserved {
  call @0 () -> ();
}

struct Nest {
  inner @0 :Nest;
  number @1 :UInt64;
}
