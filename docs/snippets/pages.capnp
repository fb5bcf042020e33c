# A store of pages: what the snippets of docs/guide.md call and serve.

@0xb94e21d07c6f3a58;

using Cxx = import "/capnp/c++.capnp";
using Memory = import "/hawser/rpc/memory.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("pages");

interface Pages {
  read @0 (number :UInt64) -> (page :Data) $Hawser.idempotent;
  # NotFound: there is no such page.

  write @1 (number :UInt64, page :Data);

  subscribe @2 () $Hawser.idempotent;
  # From now on the Subscriber that this client offers is told of each page that is written.
  # FailedPrecondition: the client offers none.
}

interface Tables {
  open @0 () -> (table :Memory.Ticket);
  # The memory in which the table is.
}

interface Subscriber {
  changed @0 (number :UInt64) $Hawser.idempotent;
}
