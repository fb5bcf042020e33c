@0xd2f8b06a5e917c34;

using Cxx = import "/capnp/c++.capnp";
using Hawser = import "/hawser/annotations.capnp";
using Person = import "/people/person.capnp".Person;
$Cxx.namespace("greeter");

interface Greeter {
  # Makes a greeting for a person.

  greet @0 (person :Person) -> (greeting :Text) $Hawser.idempotent;
  # InvalidArgument: the person has no name.
}
