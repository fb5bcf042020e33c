@0xbcbb7d84c1a6d4f1;
# The body of a response whose envelope has a status code other than OK: the rest of an absl::Status.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::internal::wire");

struct Status {
  message @0 :Text;
  details @1 :List(Detail);
  # The method was not run, and this is the answer all the same, as when an executor is full, or there is no
  # such method: Hawser does not send the call again by itself, but its caller may. One that does not know this
  # ignores it.
  refused @2 :Bool;

  struct Detail {
    # One payload of absl::Status.
    typeUrl @0 :Text;
    value @1 :Data;
  }
}
