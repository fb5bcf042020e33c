@0xe3b98c4f17d2a605;
# What other files import and extend.

using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("acme::base");

struct Status {
  text @0 :Text;
  more @1 :Status;
}

interface Node {
  # Anything that there is.

  stat @0 () -> Status;
  # What it is.
}

interface Named {
  name @0 () -> (name :Text);
}

struct Box(T) {
  value @0 :T;

  struct Inside {
    other @0 :T;
  }
}
