@0x91f6a2d7c05b3e84;

interface Store {
  struct Bucket {
    union {
      name @0 :Text;
      owner :group {
        id @1 :UInt64;
        handle @2 :Handle;
      }
    }
  }

  interface Handle {
    close @0 () -> ();
  }

  buckets @0 () -> (buckets :List(Bucket));
}
