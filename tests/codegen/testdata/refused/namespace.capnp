@0xe15b7c9028d46fa3;

using Cxx = import "/capnp/c++.capnp";

$Cxx.namespace("acme::class\n::kv");

interface Foo {
  tow @0 () -> ();
}
