@0xc7a1e5d80b3f4926;
# A hash table in memory that clients READ by themselves.

using Cxx = import "/capnp/c++.capnp";
using Memory = import "/hawser/rpc/memory.capnp";
$Cxx.namespace("table");

interface Table {
  open @0 () -> (memory :Memory.Ticket, slots :UInt64, run :UInt64);
  # `run`: of the server's process; a number that no other one has.

  put @1 (key :Text, sequence :UInt64, value :Data) -> (run :UInt64);
  # The value, unless one with a higher number is there. Once it is answered, a READ finds it, or a later one.
}
