@0xd1f3a9c07b5e2846;

interface Early extends (Late) {
  early @0 ();
}

interface Late {
  late @0 ();
}

interface Narcissus extends (Narcissus) {
  look @0 ();
}

interface Hen extends (Egg) {
  lay @0 ();
}

interface Egg extends (Hen) {
  hatch @0 ();
}

interface Chick extends (Egg) {
  peep @0 ();
}
