@0xcf1e62a7d5b80394;
# Names of another file, imported by its path in the workspace.

using Base = import "/tests/codegen/testdata/base.capnp";

interface Directory extends (Base.Node) {
  find @0 (box :Base.Box(Text)) -> Base.Box(Base.Status);
  open @1 Base.Status -> Base.Box(List(UInt16)).Inside;
}
