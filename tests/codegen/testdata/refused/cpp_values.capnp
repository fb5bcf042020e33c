@0xa7c20f94e8b5d163;
# Constants and members of a union have names in capital letters, which types may have, too.

struct Id {
  union {
    id @0 :ID;
    tcp @1 :TCP;
    udp @2 :Text;
    s :group {
      t @3 :Text;
    }
    map @4 :MAP;
  }
  kinds @5 :List(KIND(Text));

  struct ID {}

  struct TCP {}

  struct UDP {}
  # Hidden by the member of that name, which C++ allows for a class that nothing refers to.

  interface MAP {}

  struct KIND(T) {
    t @0 :T;
  }

  const kind :Text = "a";
}

enum A {
  a @0;
}

const a :Int32 = 1;

struct B {
  const b :Int32 = 1;
}

struct Pair(First, Reader) {
  first @0 :First;
  second @1 :Reader;

  struct First {}

  struct Nested(First) {}

  const nine :Text = "9";
}

struct Same(Same) {}
