#ifndef POLITE_GREETER_H_
#define POLITE_GREETER_H_

#include "absl/status/status.h"
#include "greeter.rpc.h"

namespace greeter {

// The service of the server. GreeterService in greeter.rpc.h declares the methods to override.
class PoliteGreeter : public GreeterService {
 public:
  absl::Status Greet(hawser::ServerContext& context, Greeter::GreetParams::Reader request,
                     Greeter::GreetResults::Builder reply) override;
};

}  // namespace greeter

#endif  // POLITE_GREETER_H_
