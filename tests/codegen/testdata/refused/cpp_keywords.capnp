@0x8d4e17b2f6a3c095;
# Keywords of C++20, macros of the C library and what is no identifier.

using Cxx = import "/capnp/c++.capnp";

interface Foo {
  requires @0 () -> ();
  concept @1 (requires :Text) -> (concept :Text);
  consteval @2 () -> ();
  constinit @3 () -> ();
  assert @4 () -> ();
  methodId @5 () -> ();
  context @6 () -> ();
  class @7 () -> ();
  # capnpc-c++ makes class_() of this one.

  nothing @8 () -> () $Cxx.name("requires");
  something @9 (a :Text $Cxx.name("a b"), b :Text, c :Text $Cxx.name("b")) -> () $Cxx.name("fine");
  anything @10 () -> () $Cxx.name("a-b");
  errno @11 () -> ();
}

struct Bar $Cxx.name("class") {
  requires @0 :Text;
  nothing @1 :Text $Cxx.name("");

  many :group {
    some @2 :Text $Cxx.name("other");
    other @3 :Text;
  }
}

struct Baz $Cxx.name("Foo::Baz") {}

enum Error {
  null @0;
  # capnpc-c++ makes NULL_ of this one.

  eof @1;
  enoent @2;
  bigEndian @3;
  class @4;
  mine @5 $Cxx.name("yours");
  yours @6;
}

struct EOF {}
