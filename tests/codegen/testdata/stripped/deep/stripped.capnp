@0xb1c7d0e94f2a6835;
# Imported and included as deep/stripped.capnp: its library strips the folders before that.

using Base = import "/tests/codegen/testdata/base.capnp";

interface Stripped extends (Base.Node) {}
