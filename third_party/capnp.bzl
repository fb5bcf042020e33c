"""For rules that run the Cap'n Proto compiler."""

# The folder for `capnp compile -I`, relative to the root of an action that has //third_party:capnp_imports as
# input.
CAPNP_IMPORT_PATH = "external/hawser_system/include"
