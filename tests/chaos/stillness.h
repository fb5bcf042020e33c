#ifndef HAWSER_TESTS_CHAOS_STILLNESS_H_
#define HAWSER_TESTS_CHAOS_STILLNESS_H_

#include <cstdint>
#include <map>
#include <string>

#include "hawser/tests/chaos/history.h"

namespace hawser::chaos {

// What the server, while it has no calls, and the client that is never killed hold.
struct Stillness {
  std::map<std::string, uint64_t> stats;  // What `kv stats` prints.
  int server_files = 0, client_files = 0;
  double server_mib = 0, client_mib = 0;
};

// For people.
std::string ToString(const Stillness& still);

// No process has so much more memory than before that the comparisons below find it wrong.
bool MemoryIsBack(const Stillness& before, const Stillness& after);

// A process that has more after the harm than before has leaked something: that is wrong.
void CompareClient(const Stillness& before, const Stillness& after, History& history);
void CompareServer(Stillness before, Stillness after, History& history);

}  // namespace hawser::chaos

#endif  // HAWSER_TESTS_CHAOS_STILLNESS_H_
