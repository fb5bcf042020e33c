#ifndef HAWSER_TESTS_FUZZ_RPC_WORDS_H_
#define HAWSER_TESTS_FUZZ_RPC_WORDS_H_

#include <cstdint>
#include <map>
#include <string>

#include "hawser/tests/fuzz/liar_line.h"

namespace hawser::fuzz {

// What a liar sends to rpc/: good requests and answers of tests/sim/ledger.capnp, calls of methods that do
// not exist, statuses, answers "not run", and messages that Cap'n Proto cannot read. All of it is valid to
// transport/. It checks what it receives: envelopes must be good, and no call may come more often than its
// method allows.
class RpcWords final : public LiarWords {
 public:
  std::string Envelope(Script& script, bool request) override;
  std::string Body(Script& script, bool request) override;
  void Hear(const transport::ParsedMessage& message) override;

  // An answer was not a good message and an OK.
  bool said_something_odd() const { return said_something_odd_; }
  // An answer said that the call was not run, or it was an error: the body, read as a Status, may say so.
  bool said_not_run() const { return said_not_run_; }
  // How often the call with this id, the first word of its request, has come.
  int heard(uint64_t id) const;

 private:
  bool said_something_odd_ = false;
  bool said_not_run_ = false;
  std::map<uint64_t, int> heard_;
};

}  // namespace hawser::fuzz

#endif  // HAWSER_TESTS_FUZZ_RPC_WORDS_H_
