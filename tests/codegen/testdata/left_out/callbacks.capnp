@0xbe92f05a6d1c7843;
# Of its interfaces only one can be served.

using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("acme::mixed");

interface Listener {
  tell @0 (text :Text) -> ();
}

interface Registry {
  add @0 (listener :Listener) -> ();
}
