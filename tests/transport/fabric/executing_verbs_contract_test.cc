// The fabric contract over verbs, on a device in memory that executes what it is asked.

#include <netinet/in.h>

#include <memory>
#include <vector>

#include "hawser/tests/transport/fabric/executing_verbs.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/transport/fabric/verbs/fabric.h"

namespace hawser::fabric {
namespace {

std::shared_ptr<Fabric> New(bool windows) {
  static ExecutingVerbs* const verbs = new ExecutingVerbs({});
  return NewVerbsFabric({.device = "fake0",
                         .grants = windows ? GrantKind::kWindows : GrantKind::kRegistered,
                         .library = &verbs->library()})
      .value();
}

}  // namespace

std::vector<FabricUnderTest> FabricsUnderTest() {
  sockaddr_in loopback = {};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const SocketAddress address(reinterpret_cast<sockaddr*>(&loopback), sizeof(loopback));
  FabricUnderTest windows = {"Windows", [] { return New(true); }, address, {}};
  FabricUnderTest registrations = {
      "Registrations", [] { return New(false); }, address, {.rkeys_are_for_everybody = true}};
  for (FabricUnderTest* one : {&windows, &registrations}) {
    one->real_addresses = true;
    one->atomics = true;
    one->posts_inline = true;
    one->shortcomings.rnr_is_not_waited_for = true;
  }
  return {windows, registrations};
}

}  // namespace hawser::fabric
