@0xb1d4c70e52f8a936;

using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("hawser");

interface Channel {
  tow @0 () -> ();
}
