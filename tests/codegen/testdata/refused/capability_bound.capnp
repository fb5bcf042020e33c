@0xa04e9c6d1b82f573;
# Capabilities that come in through type parameters, one of them past a recursive type.

struct Map(Key, Value) {
  entries @0 :List(Entry);

  struct Entry {
    key @0 :Key;
    value @1 :Value;
  }
}

struct Tree(T) {
  parent @0 :Tree(T);
  children @1 :List(Tree(Tree(T)));
  leaf @2 :Map(Text, T);
}

interface Handle {}

interface Registry {
  all @0 () -> Map(Text, Handle);
  one @1 Map(Text, Handle).Entry -> ();
  tree @2 Tree(List(Handle)) -> ();
}
