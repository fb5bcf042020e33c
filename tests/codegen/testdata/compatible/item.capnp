@0xb4c0a9e2d6f13857;

struct Item {
  name @0 :Text;
  size @1 :UInt32;
}
