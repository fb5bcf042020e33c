@0xd18b6c3f72a9e054;
# Interfaces that can be served, beside others that cannot.

using Cxx = import "/capnp/c++.capnp";
using Callbacks = import "callbacks.capnp";

$Cxx.namespace("acme::mixed");

struct Item {
  name @0 :Text;
  owner @1 :Callbacks.Listener;
}

interface Store {
  get @0 (key :Text) -> (value :Data);

  struct Key {
    text @0 :Text;
  }

  interface Inner {
    # Fine inside of one that is left out, and the other way round.

    take @0 (item :Item) -> ();
  }
}

interface News {
  subscribe @0 (topic :Text, listener :Callbacks.Listener) -> ();
  unsubscribe @1 (listener :Callbacks.Listener) -> ();

  interface Archive extends (Store) {
    day @0 (key :Store.Key) -> (text :Text);
  }
}

interface LocalNews extends (News) {}

interface Village extends (LocalNews, Store) {}

interface Calls extends (Callbacks.Registry) {}

interface Map(T) {
  get @0 (key :Text) -> (value :T);
}

interface Upload {
  write @0 (bytes :Data) -> stream;
}

interface Taken {}

struct TakenStub {}

interface AlsoTaken extends (Taken) {}
