# A key-value store whose values may be large, and which tells clients of changes.

@0xda6d5cb5044e0025;

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("kv");

const keyBytesMax :UInt32 = 4096;
# A key has 1 to so many bytes, none of them a control character (below 0x20, 0x7f), because keys are printed
# one a line. They are ordered by their bytes.

interface KeyValue {
  # Each change has a revision, one more than the change before it. Revisions are compared within one history
  # only: a server that starts anew starts a new history.
  #
  # put and remove are not idempotent: sent again after the connection was lost, they could undo what somebody
  # else has changed in between. Whoever calls them learns Unavailable and decides.

  put @0 (key :Text, value :Data) -> (revision :UInt64);
  # InvalidArgument: not a key, or the value is too large. ResourceExhausted: the server's memory is full.

  get @1 (key :Text) -> (value :Data, revision :UInt64) $Hawser.idempotent;
  # NotFound: there is no such key. InvalidArgument: not a key. A large value is READ from where it lives; what is returned is the value
  # of that revision, whatever happens to the key meanwhile.

  remove @2 (key :Text) -> (revision :UInt64);
  # NotFound: there is no such key. InvalidArgument: not a key.

  list @3 (prefix :Text, start :Text, limit :UInt32, values :Bool) -> (entries :List(Entry), next :Text)
      $Hawser.idempotent;
  # A page of the keys that begin with `prefix`, in order, from `start` on. `next` is where the next page
  # starts; empty after the last one. `limit` 0: as many as the server likes, which is also the most there
  # are; a page ends when its keys fill 64 KiB or, with `values`, keys and values 1 MiB. A page is consistent;
  # from one to the next keys come and go. InvalidArgument: `prefix` or `start` is longer than a key may be.

  watch @4 (watch :UInt64, prefix :Text, history :UInt64, after :UInt64)
      -> (history :UInt64, revision :UInt64, lost :Bool) $Hawser.idempotent;
  # From now on the changes of keys that begin with `prefix` are pushed to the Watcher that this client
  # offers, under a number `watch` that the client chose; a watch of the same number is replaced. `history` 0:
  # those behind `revision`, which is the present. Otherwise the watch resumes: those behind revision `after`
  # of that `history`. `lost`: the server no longer has all of these, so it goes on behind `revision`; list
  # what is there now. FailedPrecondition: this client offers no Watcher. InvalidArgument: `prefix` is longer
  # than a key may be. ResourceExhausted: this client has 256 watches.

  unwatch @5 (watch :UInt64) $Hawser.idempotent;
  # Ends a watch. A push that is under way may still arrive. It is no error if there is no such watch.

  stats @6 () -> Stats $Hawser.idempotent;

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
}

interface Watcher {
  # What a client offers that wants to be told of changes.

  push @0 (watch :UInt64, lost :Bool, revision :UInt64, events :List(Event)) $Hawser.idempotent;
  # Changes in the order of their revisions, each once, except that a push may be repeated when its answer was
  # lost: ignore what has a revision not above the last one seen. The next push is sent when this one has been
  # answered, so a watcher that is slow to answer is not flooded. `lost`: it was too slow and the server no
  # longer has all changes up to `revision`; list what is there now. NotFound: the watcher does not know this
  # watch; it is ended. A push without events says that nothing that is watched has changed up to `revision`;
  # it comes while a watch that resumes catches up.

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
