@0xd0a5b3c1e2f40718;
# No interface, no namespace: the generated files are there, and empty.

struct Point {
  x @0 :Float64;
  y @1 :Float64;
}

const origin :Point = (x = 0, y = 0);
