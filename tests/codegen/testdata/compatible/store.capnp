# Get and del are swapped, and the type of a field in item.capnp has changed.
@0xe81d5b3f7a2c9064;

using Item = import "item.capnp".Item;

interface Store {
  del @0 (key :Text) -> (item :Item);
  get @1 (key :Text) -> (item :Item);
}
