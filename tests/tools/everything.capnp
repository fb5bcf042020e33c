@0xe6a1c0d2b9f84735;
# A schema of all that a schema can have and Hawser can serve.

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
$Cxx.namespace("hawser::everything");

interface Base {
  hello @0 (name :Text = "you") -> (text :Text);

  struct Shared {
    number @0 :UInt8;
  }
}

interface Everything extends(Base) {
  echo @0 (all :All) -> (all :All) $Hawser.idempotent;
  fail @1 (code :UInt16, text :Text) -> ();
  nothing @2 () -> ();
  named @3 Params -> Params;
  sleep @4 () -> ();
  hello2 @5 (shared :Base.Shared) -> ();

  struct Params {
    text @0 :Text;
    picture @1 :Data;
    inner :group {
      bytes @2 :Data;
      name @3 :Text;
    }
    size @4 :UInt64;
  }
}

enum Color {
  red @0;
  green @2;
  blue @1;
}

struct Box(T) {
  value @0 :T;
}

struct All {
  void @0 :Void;
  bool @1 :Bool = true;
  int8 @2 :Int8 = -5;
  int16 @3 :Int16;
  int32 @4 :Int32;
  int64 @5 :Int64 = -9223372036854775808;
  uint8 @6 :UInt8;
  uint16 @7 :UInt16;
  uint32 @8 :UInt32;
  uint64 @9 :UInt64 = 18446744073709551615;
  float32 @10 :Float32 = 1.5;
  float64 @11 :Float64 = -inf;
  text @12 :Text = "a \"b\"\n\xc3\xa4";
  data @13 :Data = 0x"00 ff";
  numbers @14 :List(Int32) = [1, -2];
  color @15 :Color = blue;
  inner @16 :Inner;
  inners @17 :List(Inner);
  lists @18 :List(List(Text));
  datas @19 :List(Data);
  colors @20 :List(Color);
  any @21 :AnyPointer;
  box @22 :Box(Text);
  place :group {
    x @23 :Int32;
    y @24 :Int32;
  }
  choice :union {
    none @25 :Void;
    word @26 :Text;
    pair :group {
      a @27 :UInt32;
      b @28 :UInt32;
    }
  }
  union {
    first @29 :UInt32;
    second @30 :Text;
    third @31 :Inner;
  }
  preset @32 :Inner = (key = "a\"\n", value = -3, next = (color = light), outer = green);
  presets @33 :List(Inner) = [(key = "k"), ()];
  bools @34 :List(Bool);
  voids @35 :List(Void);
  int64s @36 :List(Int64);
  uint64s @37 :List(UInt64);
  float32s @38 :List(Float32);
  float64s @39 :List(Float64);
  texts @40 :List(Text);

  struct Inner {
    key @0 :Text;
    value @1 :Int64;
    next @2 :Inner;
    color @3 :Color;

    enum Color {
      # Of the same name as the one outside.
      dark @0;
      light @1;
    }
    outer @4 : .Color;
  }
}
