@0xf2a95d6048b7c13e;

struct Box(T) {
  value @0 :T;
}

interface Echo {
  echo @0 [T] Box(T) -> Box(T);
}
