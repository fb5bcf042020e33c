@0xb1f6a3d0c52e9487;
# What the hosts of a simulated world ask of each other.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("hawser::sim::ledger");

struct Entry {
  id @0 :UInt64;
  bytes @1 :Data;
  answerBytes @2 :UInt32;
  # How much is to come back.
}

interface Ledger {
  add @0 Entry -> Entry;
  # At most once.
  look @1 Entry -> Entry $Hawser.idempotent;
  watch @2 (watch :UInt64) -> (revision :UInt64);
  # Each revision after the one that is returned goes to the caller's Watcher.
}

interface Watcher {
  changed @0 (watch :UInt64, revision :UInt64) -> ();
}
