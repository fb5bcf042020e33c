#include "hawser/rpc/options.h"

namespace hawser {

// Here, not in the header, where each file that includes it would have its destructor called at exit.
constinit const CallOptions CallOptions::kNone;

}  // namespace hawser
