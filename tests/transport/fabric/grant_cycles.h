#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_GRANT_CYCLES_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_GRANT_CYCLES_H_

#include <string>

#include "hawser/tests/transport/fabric/fabric_contract.h"

namespace hawser::fabric {

// What CycleGrants() has done.
struct GrantCycles {
  int revoked = 0;  // Grants that only the granting side has revoked.
  int ended = 0;    // Grants that a SEND of the peer has ended before.

  // "3 grants were made, used and revoked; a SEND of the peer has ended 1 of them (SEND_WITH_INV)".
  std::string ToString() const;
};

// Makes a grant over and over, as in a process that lives for days: the memory of it has other bytes each
// time, the peer READs them, and it is revoked. Where Fabric::sends_end_grants(), a SEND of the peer ends
// every other one first. With memory windows each cycle binds a window again, after LOCAL_INV or after the
// peer's SEND_WITH_INV. Ends early if the test fails.
GrantCycles CycleGrants(FabricWorld& world, int cycles);

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_GRANT_CYCLES_H_
