@0xc93b10e7a6f4d258;
# Types that refer to one another: the capability is found whatever is looked at first.

struct A {
  b @0 :B;
  box @1 :Box(B);
  handle @2 :Handle;
}

struct B {
  a @0 :A;
}

struct Box(T) {
  value @0 :T;
}

interface Handle {}

interface Mutual {
  a @0 A -> ();
  b @1 B -> ();
  box @2 Box(B) -> ();
}
