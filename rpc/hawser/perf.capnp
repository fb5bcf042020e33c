@0xecaba255936c9d7a;
# Lets a client measure latency and bandwidth (the tool: `hawser perf`). A Server has this service only if a program put
# PerfExtension() into its ServerOptions::extensions: any client that may call it can make the server send and receive as much as the
# network carries.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
using Memory = import "/hawser/rpc/memory.capnp";
$Cxx.namespace("hawser::perf");

enum RawService {
  # What a raw connection does for its client, see openRaw. The first four are of TCP sockets, where N is a number of 8 bytes,
  # little-endian, 16 MiB at most.
  echo @0;      # Sends back every byte that it gets.
  pingPong @1;  # Takes N once, then sends back N bytes when it has all of them, repeatedly.
  sink @2;      # Takes N and N bytes, then sends one byte, repeatedly.
  source @3;    # Takes N, then sends N bytes, repeatedly.
  queuePair @4; # A queue pair of the network that the call came over. What it does, the client says when it connects
                # (measure/verbs/raw_plan.h): SENDs there and back, READs by either end, or WRITEs or fetch-and-adds by the
                # client, of 8 MiB at most.
}

interface Perf {
  limits @0 () -> (messageBytesMax :UInt64, slots :UInt32, receiveBufferBytes :UInt32) $Hawser.idempotent;
  # ConnectionOptions of the server.

  echo @1 (payload :Data) -> (payload :Data);
  # Answers what it got. Up to 4096 bytes are copied; more are sent out of the memory in which they were received.

  put @2 (payload :Data) -> (bytes :UInt64);
  # Takes a payload, and drops it. `bytes`: its size.

  get @3 (bytes :UInt64) -> (payload :Data);
  # Answers so many bytes 'g'. If their number is a multiple of 8, above 4096, and at most a 64th of the server's registered
  # memory (rounded down to a power of two), they are ready there from the second call on; otherwise they are filled in for
  # each call. InvalidArgument: more than messageBytesMax allows. ResourceExhausted: the server has no memory for it.

  openRaw @4 (service :RawService, address :Text) -> (port :UInt16, token :Data);
  # For the floor of the same network: opens a port of the server that serves one connection without Hawser: a TCP port, or,
  # for queuePair, one of the client's network and device. `address`: the numeric one that the client has for the server.
  # The connection comes from the client's host within 5 s, and begins with `token`, 16 bytes, which a queue pair has in the
  # private data of its request to connect; after 60 s the server ends it. ResourceExhausted: there are 4 such ports, or 3 of
  # the client's host.
  # FailedPrecondition: the server has credentials, and a raw connection has none; or queuePair over TCP, which has sockets.
  # InvalidArgument: the server knows no such service.

  share @5 (access :UInt8) -> (memory :Memory.Ticket);
  # Memory that the client reaches by itself. `access`, as of the ticket: 1, for READs: 4 MiB of bytes 'g'; 3, for WRITEs: 4 MiB;
  # 4, for atomics: 4096 bytes. All clients that ask for the same access share one memory: each reads what the others have
  # written. The server has it from the first time until its end. ResourceExhausted: there is no memory for it (the answer
  # for a second, too), or this client's host has too many tickets. InvalidArgument: another access.
}
