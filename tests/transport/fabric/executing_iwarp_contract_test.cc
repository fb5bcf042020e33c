// The fabric contract over verbs, on an iWARP device in memory that executes what it is asked. It needs
// REMOTE_WRITE of what a READ fills, which siw does not.

#include <netinet/in.h>

#include <memory>
#include <vector>

#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {

std::vector<FabricUnderTest> FabricsUnderTest() {
  sockaddr_in loopback = {};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  FabricUnderTest iwarp = {
      .name = "Iwarp",
      .create =
          [] {
            static ExecutingVerbs* const verbs = new ExecutingVerbs({.iwarp = true});
            return NewVerbsFabric({.device = "fake0", .library = &verbs->library()}).value();
          },
      .listen_address = SocketAddress(reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback)),
      .shortcomings = {.rkeys_are_for_everybody = true,
                       .rnr_is_not_waited_for = true,
                       .read_has_one_sge = true},
      .real_addresses = true};
  return {iwarp};
}

}  // namespace hawser::fabric
