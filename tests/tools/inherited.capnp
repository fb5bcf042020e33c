@0xa5d07b3e9c1f4268;
# An interface that inherits two methods of one name.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::inherited");

interface Disk {
  open @0 ();
  spin @1 ();
}

interface Door {
  open @0 ();
}

interface Machine extends (Disk, Door) {
  start @0 ();
}
