@0xe81d5b3f7a2c9064;

using Item = import "item.capnp".Item;

interface Store {
  get @0 (key :Text) -> (item :Item);
  del @1 (key :Text) -> (item :Item);
}
