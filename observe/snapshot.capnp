@0xd0b5a1c3f27e4896;
# What a server says of itself at one moment: the one source of its metrics, its status page, their JSON, and what
# `hawser top` and `hawser status` show. A program that only calls has no server, and what belongs to one is not set.
#
# Counts are since the server was made, or for a poller since that poller was started, and never go back. Each is exact, but
# they are read one after the other, while the pollers go on. Times of the clock are nanoseconds since 1970 (UTC), durations
# nanoseconds.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::observe::wire");

struct Snapshot {
  takenUnixNs @0 :Int64;
  process @1 :Process;
  server @2 :Server;
  methods @3 :List(Method);          # Those that are served, by name; also those that were never called.
  connections @4 :List(Connection);  # Some 200 of each poller, 1000 in all. The totals count all of them.
  connectionsLeftOut @5 :UInt64;
  totals @6 :List(ConnectionTotal);
  calls @7 :List(Call);              # In flight: 200 of each poller, not always its oldest; of these the 200 oldest.
  callsLeftOut @8 :UInt64;
  slowest @9 :List(Call);            # Ended in this minute or the one before, the slowest first.
  pollers @10 :List(Poller);
  pools @11 :List(Pool);
  refusals @12 :List(Refusal);
  configuration @13 :List(Setting);
  tls @14 :Tls;
  channels @15 :List(Channel);  # Of the process, to other servers, each connection; by address; 200 at most.
  channelsLeftOut @16 :UInt64;
  channelTotals @17 :ChannelCounts;  # Of all channels that there ever were in this process.
  channelCallsWaiting @18 :UInt64;   # Of all channels that there are.
  outgoing @19 :List(OutgoingCalls);  # That the process has made, since it began; by target and method; 500 at most.
  outgoingLeftOut @20 :UInt64;
  outgoingCalls @21 :UInt64;          # Of all targets and methods, those left out included.
  outgoingFailed @22 :UInt64;         # That did not end with OK.
  memory @23 :SharedMemory;           # Of the server.
  remoteOperations @24 :List(RemoteOperations);  # That the process has begun, since it began: those that have ended.
}

struct Process {
  name @0 :Text;  # The file name of the program.
  pid @1 :UInt32;
  host @2 :Text;
  startedUnixNs @3 :Int64;   # 0: the kernel does not say.
  cpuNs @4 :UInt64;          # Of all its threads that are or were, in user and kernel mode.
  residentBytes @5 :UInt64;  # This and what follows: 0 is unknown, as where there is no /proc.
  virtualBytes @6 :UInt64;
  openFiles @7 :UInt64;
  openFilesMax @8 :UInt64;   # RLIMIT_NOFILE; 0: none.
}

struct Server {
  startedUnixNs @0 :Int64;
  state @1 :State;
  addresses @2 :List(Text);
  whyNotRdma @3 :Text;
  connectionsMax @4 :UInt64;
  connectionsPerHostMax @5 :UInt64;
  connectionsOpen @6 :UInt64;
  callsRunning @7 :UInt64;
  callsTotal @8 :UInt64;     # Requests that have come, refused ones included.
  hasCredentials @9 :Bool;
  services @10 :List(Text);  # Of interfaces: "kv.capnp:KeyValue".
  callsQueued @11 :UInt64;   # Of those that run, the ones that wait for the executor; on pollers that answered.

  enum State {
    serving @0;
    draining @1;
    down @2;
  }
}

struct Method {
  name @0 :Text;                # "kv.capnp:KeyValue.get".
  interfaceId @1 :UInt64;
  ordinal @2 :UInt16;
  calls @3 :UInt64;             # That have ended.
  running @4 :UInt64;
  statuses @5 :List(StatusCount);  # Those that are not zero.
  latency @6 :Histogram;        # From the poller's turn that has the whole request to its answer.
  requestBytes @7 :UInt64;      # Bodies of requests and of responses.
  responseBytes @8 :UInt64;
}

struct StatusCount {
  code @0 :UInt16;  # absl::StatusCode.
  name @1 :Text;    # "OK", "DEADLINE_EXCEEDED".
  count @2 :UInt64;
}

struct Histogram {
  # Bucket i counts what took less than boundsNs[i], and no less than the bound before. The last bound is the greatest Int64.
  boundsNs @0 :List(Int64);
  counts @1 :List(UInt64);
  sumNs @2 :UInt64;
}

struct Connection {
  peer @0 :Text;  # "tcp://10.0.0.7:51234".
  identity @1 :Text;    # The names in its certificate; empty: not authenticated.
  fabric @2 :Text;      # "tcp", "rdma".
  state @3 :Text;       # "connecting", "ready", "draining", "flushing"; "closed": a handler still runs.
  slots @4 :UInt32;         # Agreed.
  slotsInUse @5 :UInt32;
  receivesPosted @6 :UInt32;
  receiveBytes @7 :UInt64;  # Of the pool, for its receives.
  sinceUnixNs @8 :Int64;
  requests @9 :UInt64;
  poller @10 :UInt32;  # Its place in Snapshot.pollers.
  number @11 :UInt64;  # As in the log and in probes: "connection 12".
  slotsGiven @12 :UInt32;   # Of the agreed ones, those that the client may use now: there are receives for so many requests.
  slotsWanted @13 :UInt32;  # With those for which receives wait for memory.
}

struct ConnectionTotal {
  fabric @0 :Text;
  state @1 :Text;
  count @2 :UInt64;
  slots @3 :UInt64;
  slotsInUse @4 :UInt64;
  slotsGiven @5 :UInt64;
  slotsWanted @6 :UInt64;
}

struct Call {
  method @0 :Text;
  peer @1 :Text;
  identity @2 :Text;
  stage @3 :Text;        # Where it is: "waits for the executor", "running", "deferred"; of an ended call its status.
  ageNs @4 :Int64;       # Of an ended call its whole time.
  deadlineInNs @5 :Int64;  # -1: none.
  queuedNs @6 :Int64;    # Where the time went: waiting for the executor, or without one for the
                         # handlers that its poller ran first; in the handler; deferred.
  handlerNs @7 :Int64;
  deferredNs @8 :Int64;
  endedUnixNs @9 :Int64;  # 0: in flight.
  requestBytes @10 :UInt64;
  id @11 :Text;  # As in the log: "12:3.17", slot 3 of connection 12, its 17th call.
}

struct Poller {
  name @0 :Text;    # "tcp 0", "rdma mlx5_0 1".
  fabric @1 :Text;
  mode @2 :Text;       # "adaptive", "spin", "sleep".
  busyNs @3 :UInt64;   # It had work,
  spinNs @4 :UInt64;   # looked for some,
  sleepNs @5 :UInt64;  # slept.
  turns @6 :UInt64;    # That found work.
  sleeps @7 :UInt64;
  connections @8 :UInt64;
  sentWhole @9 :UInt64;
  sentPushed @10 :UInt64;
  sentRead @11 :UInt64;
  receivedWhole @12 :UInt64;
  receivedPushed @13 :UInt64;
  receivedRead @14 :UInt64;
  readBytesInFlight @15 :UInt64;  # Of the READ budget.
  readBytesMax @16 :UInt64;
  readsWaiting @17 :UInt64;
  memoryWaiters @18 :UInt64;      # Connections that wait for small buffers: for receives, or for an error that they answer.
  sentBytes @19 :UInt64;          # Of the bodies of messages.
  answered @20 :Bool;  # False: code of the application holds it; of what is on it only counters are known.
  heldBy @21 :Text;    # That code, and for how long: "the handler of
                       # kv.capnp:KeyValue.get, call 12:3.17, for 12 s". Empty: none.
}

# Registered memory that the pollers on one network device share.
struct Pool {
  name @0 :Text;  # "tcp", "rdma mlx5_0".
  limitBytes @1 :UInt64;
  registeredBytes @2 :UInt64;
  leasedBytes @3 :UInt64;
  classes @4 :List(PoolClass);  # The sizes of which there are any buffers, the smallest first.
}

struct PoolClass {
  bufferBytes @0 :UInt64;
  buffers @1 :UInt64;  # Registered, leased or not.
  leased @2 :UInt64;
}

# Handshakes with clients. All zero: the server has no credentials.
struct Tls {
  full @0 :UInt64;     # With certificates,
  resumed @1 :UInt64;  # or with a ticket of an earlier one.
  failed @2 :UInt64;   # A peer that left before the end is not in here.
}

# A connection of a channel: it has one, unless ChannelOptions::connections says otherwise.
struct Channel {
  address @0 :Text;  # "tcp://kv1:7470"; of several connections: "tcp://kv1:7470 (connection 2 of 4)".
  state @1 :Text;    # "connecting", "ready", "transient failure", "closed".
  counts @2 :ChannelCounts;
  callsWaiting @3 :UInt64;  # For a connection, or for a free slot.
}

# Calls to one target.
struct OutgoingCalls {
  target @0 :Text;    # "tcp://kv1:7470"; "(clients)": ServerContext::peer(); "(other)": see OutgoingCalls (rpc/client/outgoing_calls.h).
  method @1 :Method;  # Without `running` and bytes. Latency: from when the poller gets the call to the turn that has its result.
}

# Memory that clients reach by themselves. What they do there, the server does not see.
struct SharedMemory {
  regions @0 :UInt64;  # That are shared and not revoked.
  bytes @1 :UInt64;    # Of these.
  tickets @2 :UInt64;  # That clients have.
  lanes @3 :UInt64;    # Connections of clients for it that are open.
  lanesOpened @4 :UInt64;
  grants @5 :UInt64;   # Tickets that are in use on a lane.
}

# One-sided operations on the memory of servers, of one kind.
struct RemoteOperations {
  kind @0 :Text;                   # "read", "write", "compare-and-swap", "fetch-and-add".
  statuses @1 :List(StatusCount);  # OK, and those that are not zero.
}

struct ChannelCounts {
  connects @0 :UInt64;        # Successful attempts: the first, and reconnects.
  losses @1 :UInt64;          # Of a connection, for whatever cause; also servers that drain.
  failedAttempts @2 :UInt64;  # At every address of the server.
}

struct Refusal {
  reason @0 :Text;  # As in a metric's label: "slot", "greeting", "tls".
  count @1 :UInt64;
}

struct Setting {
  name @0 :Text;   # "ServerOptions::connections_max".
  value @1 :Text;
}
