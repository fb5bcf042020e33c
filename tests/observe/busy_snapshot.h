#ifndef HAWSER_TESTS_OBSERVE_BUSY_SNAPSHOT_H_
#define HAWSER_TESTS_OBSERVE_BUSY_SNAPSHOT_H_

#include <functional>
#include <string>

#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

struct BusyOptions {
  unsigned methods = 3;
  unsigned connections = 2;
  unsigned calls = 2;
  unsigned pollers = 2;
  int64_t taken_unix_ns = 1'700'000'000'000'000'000;
  // Makes each text of the snapshot, of a peer or not, from the one that would be there.
  std::function<std::string(std::string)> text = [](std::string original) { return original; };
};

// Fills in each field of the snapshot of a server that is busy. Method number i has been called i times, and
// the later ones take longer.
void FillInBusy(const BusyOptions& options, wire::Snapshot::Builder snapshot);

}  // namespace hawser::observe

#endif  // HAWSER_TESTS_OBSERVE_BUSY_SNAPSHOT_H_
