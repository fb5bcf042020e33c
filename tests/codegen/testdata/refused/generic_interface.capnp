@0xd51f7c30b9e2a864;

interface Store(T) {
  get @0 (key :Text) -> (value :T);
}

struct Scope(T) {
  interface Inside {
    get @0 () -> (value :T);
  }
}
