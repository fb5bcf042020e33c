@0xc70fe5a39d4b1826;
# Names for what another file declares.

using SomeNode = import "base.capnp".Node;
using SomeStatus = import "base.capnp".Status;

struct Uses {
  status @0 :SomeStatus;
}
