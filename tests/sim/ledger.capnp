@0xb1f6a3d0c52e9487;
# The calls between the hosts of a simulated world.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
using Memory = import "/hawser/rpc/memory.capnp";
$Cxx.namespace("hawser::sim::ledger");

struct Entry {
  id @0 :UInt64;
  bytes @1 :Data;
  answerBytes @2 :UInt32;
  # The size of the answer.
}

interface Ledger {
  add @0 Entry -> Entry;
  # Runs at most once.
  look @1 Entry -> Entry $Hawser.idempotent;
  watch @2 (watch :UInt64) -> (revision :UInt64);
  # The server sends each revision after the returned one to the caller's Watcher.
  grant @3 (memory :UInt64, offset :UInt64, length :UInt64, access :UInt8, counted :Bool) -> (ticket :Memory.Ticket);
  # Part of the memory with that number, whose counter counts the WRITEs if `counted`.
}

interface Watcher {
  changed @0 (watch :UInt64, revision :UInt64) -> ();
}
