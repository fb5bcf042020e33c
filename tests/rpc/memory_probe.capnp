@0xb1d2a6f0c9e84753;
# What the tests of one-sided operations call.

using Cxx = import "/capnp/c++.capnp";
using Memory = import "/hawser/rpc/memory.capnp";
$Cxx.namespace("hawser::memory_probe");

interface MemoryProbe {
  grant @0 (offset :UInt64, length :UInt64, access :UInt8) -> (ticket :Memory.Ticket);
  # Of the memory of the test. Length 0: all that follows.
}
