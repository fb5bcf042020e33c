@0xcb62f0d917e4a83d;
# Names that look as if C++ could not have them: what is refused is in refused/cpp_*.capnp.

using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("acme::allowed");

interface Reader {
  class @0 (requires :Text, class :Text, reader :Text) -> (concept :Text, which :Text);
  tow @1 TowParams -> TowResults;
  dispatchCall @2 () -> ();
  thisCap @3 () -> ();
  requires @4 (co :Text $Cxx.name("co_await")) -> () $Cxx.name("needs");
  linux @5 () -> ();
  fault @6 () -> ();

  struct TowParams {}

  struct TowResults {}

  enum Builder {
    null @0;
    class @1;
    requires @2;
    reader @3;
  }
}

struct Which {
  reads @0 :Text;
  totalSize @1 :Text;
  getReads @2 :Text;
}

struct Client {
  union {
    which @0 :Text;
    group :group {
      a @1 :Text;
      b @2 :Text;
    }
    server @3 :Server;
    a @4 :Text;
  }

  struct Server {}

  struct A {}
  # Hidden by the member of that name, which C++ allows for a class that nothing refers to.
}

struct Pair(First, Second) {
  first @0 :First;
  second @1 :Second;
}

const client :Text = "a";
const class :Int32 = 1;
