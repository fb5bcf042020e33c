"""For rules that run the Cap'n Proto compiler."""

# The folder to give to `capnp compile -I`, from the root of an action, when //third_party:capnp_imports is an input.
CAPNP_IMPORT_PATH = "external/hawser_system/include"
