#include "hawser/rpc/options.h"

namespace hawser {

// Defined here: in the header, each file that includes it would register its destructor to run at exit.
constinit const CallOptions CallOptions::kNone;

}  // namespace hawser
