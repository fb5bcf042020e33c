@0x8a729bcae1762fef;
# The memory of a server that a client reaches by itself: READ and WRITE, with no handler there (rpc/shared_memory.h,
# rpc/remote_memory.h).

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::memory");

struct Ticket {
  # The right to reach one range of a server's memory. A handler fills it in (ServerContext::Grant()), and a client gives it to
  # RemoteMemory. It is good for the connection of the call that it was made in, until that ends, the memory is revoked, or the
  # server ends. Only `length` and `access` mean something to a client.

  owner @0 :UInt64;
  # The run of the server's process: a new one after a restart.

  region @1 :UInt64;
  offset @2 :UInt64;
  # Of the range in the memory.

  length @3 :UInt64;
  # Bytes of the range.

  access @4 :UInt8;
  # Bit 0: READ; bit 1: WRITE; bit 2: atomics; bit 3, with bit 1: the server counts the WRITEs (rpc/arrival_counter.h), so that
  # the client says when they have arrived. A client that does not know a bit uses no such ticket.

  keyLow @5 :UInt64;
  keyHigh @6 :UInt64;
  # Random bits, by which the server finds the grant. A client that shows wrong ones gets nothing.
}
