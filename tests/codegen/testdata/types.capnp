@0xde5d0f9cb31a7264;
# Parameters and results of every kind that is data.

using Base = import "base.capnp";
using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("acme::types");

struct Map(Key, Value) {
  entries @0 :List(Entry);

  struct Entry {
    key @0 :Key;
    value @1 :Value;
  }
}

struct Tree {
  left @0 :Tree;
  right @1 :Tree;
  children @2 :List(Tree);
  attributes @3 :Map(Text, Tree);
}

struct Nested(T) {
  value @0 :T;
  deeper @1 :Nested(T);
}

struct Shape {
  name @0 :Text;
  union {
    circle @1 :Float64;
    square :group {
      width @2 :Float64;
      height @3 :Float64;
    }
    none @4 :Void;
  }
  color :union {
    rgb @5 :UInt32;
    named @6 :Text;
  }
}

enum Color { red @0; green @1; }

interface Listener {
  tell @0 Shape -> Shape;
}

struct Holder {
  # Has a capability, which matters to nobody as long as no method takes it.

  listener @0 :Listener;
}

interface Everything {
  scalars @0 (a :Bool, b :Int8, c :Int64, d :UInt32, e :Float32, f :Float64, g :Void, h :Color)
      -> (a :List(Bool), b :List(List(Int8)), c :List(Color), d :List(Text), e :List(Data));
  tree @1 Tree -> (tree :Tree);
  map @2 Map(Text, Data) -> Map(Text, List(Tree));
  entry @3 Map(Text, Data).Entry -> Map(Text, Map(Data, Base.Status)).Entry;
  unbound @4 Map -> Map(AnyPointer, Text);
  any @5 (a :AnyPointer, b :AnyStruct, c :AnyList) -> (value :AnyPointer);
  nested @6 Nested(Text) -> Nested(Base.Box(Base.Box(Data)));
  phantom @7 Phantom(Listener) -> ();
  # A type parameter that no field uses carries nothing.

  struct Phantom(T) {
    value @0 :Text;
  }
}
