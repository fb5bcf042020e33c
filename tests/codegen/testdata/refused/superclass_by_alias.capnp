@0xbc6a81d2f7e05943;

using Node = import "../aliases.capnp".SomeNode;

interface File extends (Node) {
  read @0 () -> (bytes :Data);
}
