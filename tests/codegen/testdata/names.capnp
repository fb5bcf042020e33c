@0x9f0b7e3a5c6d1248;
# Names that need care in C++.

using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("acme::hawser::names");

interface Service {
  # Generated services have a base class of this name.

  new @0 (class :Text) -> (virtual :Bool);
  delete @1 Namespace -> (template :Text);

  struct Namespace {
    operator @0 :Text;
  }
}

struct Outer {
  operator @0 :Int32;

  struct Middle {
    interface Inner {
      call @0 () -> Result;

      struct Result {
        ok @0 :Bool;
      }

      interface Innermost extends (Inner) {
        channel @0 () -> ();
        options @1 () -> ();
      }
    }
  }
}

interface Old $Cxx.name("Renamed") {
  oldName @0 (a :OldStruct) -> OldStruct $Cxx.name("newName");
  # Called newName() in C++, oldName in errors and traces.

  struct OldStruct $Cxx.name("NewStruct") {
    value @0 :Int32;
  }
}

interface Echo {
  # Its method takes the place of its own name, and another the place of a parameter's type, inside the classes.

  echo @0 (text :Text) -> Words;
  words @1 Words -> Words;
}

struct Words {
  all @0 :List(Text);
}

interface Loud extends (Echo) {
  louderStub @0 () -> ();
  # A fine name here. LouderStub cannot have it: there it is the constructor.
}

interface Marker {}

interface Louder extends (Loud) {}
