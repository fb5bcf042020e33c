@0xa6c1d0f47be2935f;
# What the benchmarks call.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::bench");

interface Target {
  echo @0 (payload :Data) -> (payload :Data);
  # Answers what it got: a small call.

  put @1 (payload :Data) -> ();
  # Takes a payload, and drops it.

  get @2 (bytes :UInt32) -> (payload :Data);
  # Answers `bytes` of a payload that lies ready in registered memory.

  stats @3 () -> (connections :UInt64, leasedBytes :UInt64, heapBytes :UInt64, poller :Text);
  # Of the server: ServerStats, what malloc has given out, and what its pollers decided.

  forward @4 (payload :Data) -> (payload :Data);
  # Answers what it got, out of the memory in which it was received.
}
