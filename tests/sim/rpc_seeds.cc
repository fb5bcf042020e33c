// Runs many seeds of the whole library. See seeds_main.h.
#include "hawser/tests/sim/rpc_world.h"
#include "hawser/tests/sim/seeds_main.h"

// 741, 2484: the client resent a call after its connection was lost, to a server that was shutting down. The
// call then failed as not sent. 1248: a proof that came too late was refused as if its client were not
// believed.
const std::vector<uint64_t> kOnceFailed = {741, 2484, 1248};

int main(int argc, char** argv) {
  return hawser::sim::SeedsMain(argc, argv, hawser::sim::RunRpcWorld, kOnceFailed);
}
