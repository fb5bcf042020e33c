# A key-value store whose values may be large, and which notifies clients of changes.

@0xda6d5cb5044e0025;

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
using Memory = import "/hawser/rpc/memory.capnp";
$Cxx.namespace("kv");

const keyBytesMax :UInt32 = 4096;
# A key has 1 to so many bytes. It has no control character (below 0x20, 0x7f), because programs print one key
# in a line. Keys are ordered by their bytes.

const tableBytesMax :UInt32 = 65536;
# A larger value is in no Table, and neither is a larger bucket.

interface KeyValue {
  # Each change has a revision, one more than the change before it. Only revisions of one history can be
  # compared: a restarted server starts a new history.
  #
  # put and remove are not idempotent: if they are resent after the connection was lost, they could undo a
  # change of another client in between. Their caller gets Unavailable and decides.

  put @0 (key :Text, value :Data) -> (revision :UInt64);
  # InvalidArgument: not a key, or the value is too large. ResourceExhausted: the server's memory is full.

  get @1 (key :Text) -> (value :Data, revision :UInt64) $Hawser.idempotent;
  # NotFound: there is no such key. InvalidArgument: not a key. The client READs a large value straight from
  # the store's memory. It gets the value of that revision, even if the key changes meanwhile.

  remove @2 (key :Text) -> (revision :UInt64);
  # NotFound: there is no such key. InvalidArgument: not a key.

  list @3 (prefix :Text, start :Text, limit :UInt32, values :Bool) -> (entries :List(Entry), next :Text)
      $Hawser.idempotent;
  # A page of the keys that begin with `prefix`, in order, from `start` on. `next` is where the next page
  # starts; empty after the last one. `limit` 0: the server's own limit, which always applies. A page ends
  # when its keys fill 64 KiB or, with `values`, keys and values 1 MiB. Each page is consistent; keys may
  # change between two pages. InvalidArgument: `prefix` or `start` is longer than a key may be.

  watch @4 (watch :UInt64, prefix :Text, history :UInt64, after :UInt64)
      -> (history :UInt64, revision :UInt64, lost :Bool) $Hawser.idempotent;
  # From now on the server pushes the changes of keys that begin with `prefix` to the Watcher that this client
  # offers. The client chooses the number `watch`; a watch with the same number is replaced. `history` 0: the
  # server pushes the changes after `revision`, the current one. Otherwise the watch resumes: the server
  # pushes the changes after revision `after` of that `history`. `lost`: the server no longer has all of
  # these, so it pushes those after `revision`; list the current keys. FailedPrecondition: this client offers
  # no Watcher. InvalidArgument: `prefix` is longer than a key may be. ResourceExhausted: this client has 256
  # watches, or has not answered as many pushes; or the clients of its host have 4096 watches, or all clients
  # 16384.

  unwatch @5 (watch :UInt64) $Hawser.idempotent;
  # Ends a watch. A push in flight may still arrive. It is no error if there is no such watch.

  stats @6 () -> Stats $Hawser.idempotent;

  share @7 () -> Table $Hawser.idempotent;
  # Memory of the server in which this client finds values by itself, with READs instead of get(). It has what
  # was put or removed before the answer to that, and before a Watcher hears of it. FailedPrecondition: this
  # server shares no memory. ResourceExhausted: it has no room for another ticket.

  struct Entry {
    key @0 :Text;
    size @1 :UInt64;  # Bytes.
    revision @2 :UInt64;
    value @3 :Data;  # Only if asked for.
  }

  struct Stats {
    keys @0 :UInt64;
    valueBytes @1 :UInt64;  # Of all values.
    revision @2 :UInt64;
    watches @3 :UInt64;
    connections @4 :UInt64;  # As hawser::ServerStats, from here on.
    callsRunning @5 :UInt64;
    callsTotal @6 :UInt64;
    leasedBytes @7 :UInt64;
    memoryBytes @8 :UInt64;  # What keys and values hold, of kv_server's --memory.
  }

  struct Table {
    memory @0 :Memory.Ticket;  # To READ. Ask for another one when it is not good any more.
    buckets @1 :UInt64;  # One behind the other, from the beginning of the memory. At least 1.
    bucketBytes @2 :UInt32;
  }
}

struct Bucket {
  # Some keys and their values. The bucket of a key has the number that is the FNV-1a hash of the key, of 64
  # bits, modulo the number of buckets. It is a cell of the memory (hawser/rpc/versioned_cell.h), whose value
  # is this message, in one segment behind its segment table.

  elsewhere @0 :UInt32;
  # Keys of this bucket that only get() finds. A key that is not in `entries` is not there if this is 0.

  entries @1 :List(Entry);

  struct Entry {
    key @0 :Text;
    revision @1 :UInt64;
    union {
      value @2 :Data;  # A small one.
      block :group {
        # A larger one has a cell of its own. If that has another version, the bucket has changed, too.
        offset @3 :UInt64;  # In the memory.
        size @4 :UInt32;  # Bytes of the value.
        version @5 :UInt64;
      }
    }
  }
}

interface Watcher {
  # A client that watches offers this service.

  push @0 (watch :UInt64, lost :Bool, revision :UInt64, events :List(Event)) $Hawser.idempotent;
  # Changes in the order of their revisions, each once. The server repeats a push whose answer was lost, so
  # ignore revisions that are not above the last one seen. The server sends the next push when this one has
  # been answered, so it does not flood a slow watcher. `lost`: the watcher was too slow, and the server no
  # longer has all changes up to `revision`; list the current keys. NotFound: the watcher does not know this
  # watch, and the server ends it, as with any other error but ResourceExhausted: after that one the server
  # repeats the push when a key, any key, changes. A push without events means that no watched key has changed
  # up to `revision`; the server sends it while a resumed watch catches up.

  struct Event {
    key @0 :Text;
    kind @1 :Kind;
    size @2 :UInt64;  # Bytes of the new value.
    revision @3 :UInt64;
    enum Kind {
      put @0;
      remove @1;
    }
  }
}
