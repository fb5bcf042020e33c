#ifndef HAWSER_BENCH_STOPPED_CLIENTS_H_
#define HAWSER_BENCH_STOPPED_CLIENTS_H_

#include <cstddef>
#include <string>

#include "hawser/bench/process.h"

namespace hawser::bench {

// Clients as they ship, over any fabric, in a process of their own that is stopped (SIGSTOP) while each has a
// large put in flight. The destructor kills it.
class StoppedClients {
 public:
  StoppedClients(const std::string& server_address, int count, size_t put_bytes);

 private:
  ServerProcess process_;
};

// Call it first in main(). In the process of stopped clients it puts, and does not return.
void PutIfAsked(int argc, char** argv);

}  // namespace hawser::bench

#endif  // HAWSER_BENCH_STOPPED_CLIENTS_H_
