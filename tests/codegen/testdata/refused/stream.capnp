@0x8c47e1f5a2d6903b;

interface Upload {
  # The word stream in a comment, and a brace { change nothing.

  write @0 (bytes :Data) -> stream;
  done @1 () -> ();
}
