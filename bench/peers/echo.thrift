namespace cpp hawser.bench.peers.wire

service Target {
  // Answers what it got.
  binary echo(1: binary payload)

  // Takes a payload, and drops it.
  void put(1: binary payload)
}
