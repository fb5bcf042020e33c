@0xe8467a1bd3905cf2;

using import "/capnp/persistent.capnp".Persistent;

interface Document extends (Persistent(Text, Text)) {
  title @0 () -> (title :Text);
}
