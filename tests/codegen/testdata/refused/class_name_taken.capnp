@0xa92d6f4b1c0e7853;

using Cxx = import "/capnp/c++.capnp";

interface Echo {
  echo @0 (text :Text) -> (text :Text);
}

interface EchoService {
  start @0 () -> ();
}

struct OtherStub {}

interface Another $Cxx.name("Other") {}
