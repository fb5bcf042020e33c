@0xe5a3c9d7104b82f6;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("people");

struct Person {
  name @0 :Text;
  title @1 :Text;  # "Dr.", or empty.
}
