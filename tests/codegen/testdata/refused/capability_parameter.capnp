@0x8a1c5b7e90d3f246;

interface Listener {
  tell @0 (text :Text) -> ();
}

interface News {
  subscribe @0 (topic :Text, listener :Listener) -> ();
}
