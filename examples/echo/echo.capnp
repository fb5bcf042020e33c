# A service that returns its input.

@0xa71b0f6e5c3d9284;

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("echo");

interface Echo {
  echo @0 (message :Data) -> (message :Data) $Hawser.idempotent;
}
