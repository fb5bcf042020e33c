@0xc7a9e51d08f3b264;
# Whether a server, and each of its services, serves. Every Server has this service unless ServerOptions::health is false.
# The states and what `check` and `watch` do with a name that the server does not know are those of gRPC's health checking
# protocol (grpc/doc/health-checking.md).

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("hawser::health");

enum ServingStatus {
  unknown @0;
  serving @1;
  notServing @2;
  serviceUnknown @3;  # To watchers only.
}

interface Health {
  check @0 (service :Text) -> (status :ServingStatus) $Hawser.idempotent;
  # `service`: as in Service.name of reflection, "kv.capnp:KeyValue"; empty: the server as a whole. NotFound: unknown.

  watch @1 (service :Text) -> () $Hawser.idempotent;
  # From now on the server calls HealthWatcher.changed of this client, first with the present state, then at each change,
  # until the client's connection ends; the client then watches anew. If changes come faster than the client takes them, it
  # gets the latest. FailedPrecondition: the client offers no service (ChannelOptions::services). ResourceExhausted: there
  # are 64 watches of this connection, 1024 of its host, or 4096 in all.
}

interface HealthWatcher {
  # A client offers this in ChannelOptions::services.
  changed @0 (service :Text, status :ServingStatus) -> () $Hawser.idempotent;
}
