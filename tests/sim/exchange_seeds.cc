// Runs many seeds of the shipping transport. See seeds_main.h.
#include "hawser/tests/sim/exchange_world.h"
#include "hawser/tests/sim/seeds_main.h"

const std::vector<uint64_t> kOnceFailed = {};

int main(int argc, char** argv) {
  return hawser::sim::SeedsMain(argc, argv, hawser::sim::RunExchangeWorld, kOnceFailed, /*lands=*/true);
}
