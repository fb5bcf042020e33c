@0x9c3e61f2ab5d7084;
# What the tests of kept structs call.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("hawser::kept_probe");

interface Keeping {
  put @0 (before :Item, item :Item, beside :Data) -> (data :Data);
}

struct Item {
  number @0 :UInt64;
  name @1 :Text;
  data @2 :Data;
  next @3 :Item;
  other @4 :Item;
  items @5 :List(Item);
  voids @6 :List(Void);
}

struct LaterItem {
  # Item, as a client has it whose schema is newer.
  number @0 :UInt64;
  name @1 :Text;
  data @2 :Data;
  next @3 :LaterItem;
  other @4 :LaterItem;
  items @5 :List(LaterItem);
  voids @6 :List(Void);
  note @7 :Text;
  count @8 :UInt32;
}
