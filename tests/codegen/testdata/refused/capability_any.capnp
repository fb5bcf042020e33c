@0xb7d2485f6ec1093a;

struct Envelope {
  content @0 :Capability;
}

interface Anything {
  take @0 (objects :List(Capability)) -> Envelope;
}
