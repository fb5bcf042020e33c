@0xbcbb7d84c1a6d4f1;
# The body of a response whose envelope has a status code other than OK: the rest of an absl::Status.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::internal::wire");

struct Status {
  message @0 :Text;
  details @1 :List(Detail);

  struct Detail {
    # One payload of absl::Status.
    typeUrl @0 :Text;
    value @1 :Data;
  }
}
