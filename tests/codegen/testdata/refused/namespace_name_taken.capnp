@0xd93e0b75a1c64f28;
# Without a namespace, beside those of what generated code includes.

using Cxx = import "/capnp/c++.capnp";

interface Pier $Cxx.name("hawser") {
  tow @0 () -> ();
}

struct Libraries $Cxx.name("std") {}

struct Pool {
  struct Mine $Cxx.name("std") {}
}
