@0x95e3b07cd8f1a624;

using Cxx = import "/capnp/c++.capnp";

interface Foo {
  addMethods @0 () -> ();
  fooStub @1 () -> ();
  fooService @2 () -> ();
  bar @3 () -> ();
  other @4 Nothing -> Nothing $Cxx.name("bar");

  struct Nothing {}
}
