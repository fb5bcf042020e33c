@0xb64a0fd7c9182e53;
# Interfaces that extend others: of this file and of another one, in a diamond too.

using Cxx = import "/capnp/c++.capnp";
using Base = import "base.capnp";

$Cxx.namespace("acme::files");

interface Readable extends (Base.Node) {
  read @0 (offset :UInt64, length :UInt32) -> (bytes :Data);
  # At most `length` bytes.
}

interface Writable extends (Base.Node) {
  write @0 (offset :UInt64, bytes :Data) -> ();
}

interface File extends (Readable, Writable) {
  # Node comes to it on two paths.

  truncate @0 (size :UInt64) -> ();
}

interface Alias extends (Readable) {}
# Adds nothing.

interface Renamed extends (File, Base.Named) {
  # Its own read() takes the name of Readable's.

  read @0 (line :UInt32) -> (text :Text);
}

interface Peer {
  name @0 () -> (port :UInt16);
}

interface Both extends (Base.Named, Peer) {
  # Two methods called name(), neither of them its own.
}
