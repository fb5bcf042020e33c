// Many seeds of the whole library. See seeds_main.h.
#include "hawser/tests/sim/rpc_world.h"
#include "hawser/tests/sim/seeds_main.h"

int main(int argc, char** argv) {
  return hawser::sim::SeedsMain(argc, argv, hawser::sim::RunRpcWorld, /*once_failed=*/{});
}
