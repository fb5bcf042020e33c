@0xd7a8a1559ee4342d;
# What a server is doing, for those who run it: `hawser top` and `hawser status` ask for it. Every Server has this service unless
# ServerOptions::introspection is kNever. It answers clients of its own machine only, unless that option says otherwise: the
# snapshot has the addresses and identities of the server's clients, and the names of its options.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
using Observe = import "/hawser/observe/snapshot.capnp";
$Cxx.namespace("hawser::introspection");

interface Introspection {
  snapshot @0 () -> (snapshot :Observe.Snapshot) $Hawser.idempotent;
  # All that the server's status page has. A server takes no snapshot more often than every 250 ms: calls within that time get the
  # same one, `takenUnixNs` says which. What exceeds 4 MiB, or half of the server's ConnectionOptions::message_bytes_max, is left
  # out: first the connections, then the calls, then the histograms, then the methods. PermissionDenied: the server does not
  # answer this client. ResourceExhausted: too many calls wait for a snapshot already, in all or of this host; or the server has
  # no thread or no memory for it.
}
