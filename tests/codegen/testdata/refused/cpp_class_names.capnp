@0xf3a85c1e6b90d724;
# Names that classes of capnpc-c++ have themselves.

using Cxx = import "/capnp/c++.capnp";

interface Server {}

interface Client {
  tow @0 () -> ();
}

struct Reader {}

struct Builds {}

struct Which {
  union {
    a @0 :Text;
    b @1 :Text;
  }
}

struct Outer {
  struct Builder {}

  enum Pipeline {
    a @0;
  }

  struct Outer {}

  reader :group {
    a @0 :Text;
  }

  union {
    which :group {
      b @1 :Text;
    }
    c @2 :Text;
  }
}

interface Foo {
  tow @0 (a :Text) -> (b :Text);
  pull @1 Foo.PullParams -> ();

  struct TowParams {}

  enum TowResults {
    a @0;
  }

  struct PullParams {}
  # The parameters of a method may have this name.

  struct Server {}
}

interface Fine $Cxx.name("Other") {
  tow @0 () -> ();

  struct Server $Cxx.name("OtherServer") {}
}

struct FineWhich $Cxx.name("Other_2") {}

enum Twice $Cxx.name("Other_2") {
  a @0;
}
