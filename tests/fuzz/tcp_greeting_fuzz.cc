// The first bytes of a TCP connection: GreetingReader, which must not take one of those that follow.
#include <sys/socket.h>
#include <unistd.h>

#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/transport/fabric/tcp/greeting.h"

namespace hawser::fuzz {
namespace {

using fabric::Greeting;
using fabric::GreetingKind;
using fabric::GreetingReader;
using Result = GreetingReader::Result;

struct Outcome {
  Result result;
  std::string understood;  // The greeting, said again.
  size_t taken_bytes;

  bool operator==(const Outcome& other) const {
    return result == other.result && understood == other.understood &&
           (result != Result::kComplete || taken_bytes == other.taken_bytes);
  }
};

// What a reader makes of `bytes`, which arrive in pieces of `piece` bytes, 0: at once, and then the end.
Outcome Read(absl::string_view bytes, size_t private_data_max, size_t piece) {
  int sockets[2];
  FUZZ_EXPECT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets) == 0);
  fabric::Stream stream{UniqueFd(sockets[0])};
  GreetingReader reader(private_data_max);
  Outcome outcome = {Result::kIncomplete, "", 0};
  for (absl::string_view rest = bytes; outcome.result == Result::kIncomplete && !rest.empty();) {
    const size_t count = piece == 0 ? rest.size() : std::min(piece, rest.size());
    FUZZ_EXPECT(send(sockets[1], rest.data(), count, MSG_NOSIGNAL) == static_cast<ssize_t>(count));
    rest.remove_prefix(count);
    outcome.result = reader.Read(stream);
    outcome.taken_bytes = bytes.size() - rest.size();
  }
  if (outcome.result == Result::kIncomplete) {
    close(sockets[1]);
    sockets[1] = -1;
    outcome.result = reader.Read(stream);
  }
  char left[8192];
  const ssize_t not_taken = recv(stream.fd(), left, sizeof(left), MSG_DONTWAIT);
  outcome.taken_bytes -= static_cast<size_t>(std::max<ssize_t>(0, not_taken));
  if (sockets[1] >= 0) close(sockets[1]);
  if (outcome.result == Result::kComplete) {
    const Greeting& greeting = reader.greeting();
    FUZZ_EXPECT(reader.private_data().size() == greeting.private_data_bytes);
    FUZZ_EXPECT(reader.private_data().size() <= private_data_max);
    outcome.understood =
        fabric::EncodeGreeting(greeting.kind, greeting.read_depth, reader.private_data(), greeting.flags);
  }
  FUZZ_EXPECT(bytes.substr(0, reader.bytes().size()) == reader.bytes());
  return outcome;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  return {{"connect", "\x07" + fabric::EncodeGreeting(GreetingKind::kConnect, 16, std::string(44, 'h'))},
          {"accept", "\x00" + fabric::EncodeGreeting(GreetingKind::kAccept, 1, "private") + "frames follow"},
          {"pushes", "\x07" + fabric::EncodeGreeting(GreetingKind::kConnect, 16, std::string(44, 'h'),
                                                     fabric::kTakesPushes)},
          {"reject", "\x01" + fabric::EncodeGreeting(GreetingKind::kReject, 0, std::string(148, 'r'))},
          {"http", "\x03GET / HTTP/1.1\r\n\r\n"}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hawser::fuzz;
  Script script(data, size);
  const uint8_t how = script.Byte();
  const size_t private_data_max =
      how % 2 == 0 ? hawser::fabric::kConnectPrivateDataMax : hawser::fabric::kAcceptPrivateDataMax;
  const size_t piece = 1 + how / 2 % 32;
  const absl::string_view bytes = script.Rest();
  const Outcome at_once = Read(bytes, private_data_max, 0);
  FUZZ_EXPECT(at_once == Read(bytes, private_data_max, piece), "in pieces of ", piece, " it is another");
  FUZZ_EXPECT(at_once.result != Result::kIncomplete);
  if (at_once.result == Result::kComplete) {
    FUZZ_EXPECT(at_once.understood == bytes.substr(0, at_once.taken_bytes),
                "something was accepted and dropped, or taken from what follows");
  }
  return 0;
}
