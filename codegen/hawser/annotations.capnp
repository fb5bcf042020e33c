# What a schema can tell Hawser about itself.
#
#     using Hawser = import "/hawser/annotations.capnp";
#     interface KeyValue {
#       get @0 (key :Text) -> (value :Data) $Hawser.idempotent;
#     }

@0xf1e4cb1c6a4d8a0e;

annotation idempotent @0xb3d1f6c0a5e27c94 (method) :Void;
# Running the method twice does no harm. When a connection is lost, a call of this method that was sent already is sent
# again instead of failing with Unavailable.

annotation renamedFrom @0xc4f7a90d3be15826 (method, param, field, union, group, enumerant) :Text;
# The name that this had at its ordinal in the released schema. Without it capnp_compatible_test of
# @hawser//codegen:compatible_test.bzl fails: names are not sent, so another name at an ordinal mostly means
# something else. Several may be given, for several released names.
