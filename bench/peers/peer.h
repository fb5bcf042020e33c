#ifndef HAWSER_BENCH_PEERS_PEER_H_
#define HAWSER_BENCH_PEERS_PEER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "hawser/tls/credentials.h"

// What a system implements to be measured beside the others: a server, and a client that keeps calls in
// flight.
namespace hawser::bench::peers {

enum class Method {
  kEcho,  // The reply is the payload of the request.
  kPut,   // The server looks at the last byte of the payload and drops it. The reply is empty.
};

// From this size on, a system sends payloads in the way that it offers for large ones, without needless
// copies.
inline constexpr size_t kLargeBytes = 64 << 10;

// What one client does.
struct Load {
  Method method = Method::kEcho;
  size_t bytes = 32;  // Payload of each request.
  int in_flight = 1;  // Calls, over all connections: numbers 0 to in_flight - 1. At least `connections`.
  int connections = 1;

  int ConnectionOf(int call) const { return call % connections; }
  // Most calls in flight on one connection.
  int in_flight_each() const { return (in_flight + connections - 1) / connections; }
};

// `bytes` of payload, which begin with 'a' and end with 'p' (a single byte is 'p').
std::string MakePayload(size_t bytes);

// Exits with a message if a reply of `bytes`, which begins with `first` and ends with `last`, is not what
// MakePayload() makes for `load`. The second form is for a reply in one piece.
void CheckEcho(const Load& load, size_t bytes, uint8_t first, uint8_t last);
void CheckEcho(const Load& load, const void* reply, size_t bytes);

// Reports on stderr what failed and exits with 1. Thread: any.
[[noreturn]] void Die(const std::string& what);

// Makes malloc reuse what was freed, also where that was large, instead of returning it to the kernel. For
// systems that allocate each large payload anew, this decides what these cost.
void KeepFreedPages();

// Receives the replies of a client.
class Observer {
 public:
  virtual ~Observer() = default;
  // The client calls it when the reply to `call` is there and was checked. It may call Client::Send() for the
  // next call with this number. False: Run() is to return; no other call is in flight then.
  // Thread: the one that drives the client, one at a time.
  virtual bool OnReply(int call) = 0;
};

// One client with its connections.
// Thread:  Run() and the first Send() of each call run on the thread that created the client. The client may
//          call OnReply() on a thread of its own.
// Failure: every error ends the process, through Die() or an exception that derives from std::exception.
class Client {
 public:
  virtual ~Client() = default;

  // Sends the request of `call`, which is not in flight. It may be delayed until Run(), or until OnReply()
  // has returned.
  virtual void Send(int call) = 0;

  // Receives replies until OnReply() returns false. It may be called again.
  virtual void Run() = 0;
};

// A system. One process serves or is a client, never both. The object exists before the process is forked, so
// it has no threads or connections of its own.
class Peer {
 public:
  virtual ~Peer() = default;

  // As the report names it.
  virtual const char* name() const = 0;

  // Payloads that its messages can hold. A point with a larger one is skipped.
  virtual size_t bytes_max() const { return std::numeric_limits<size_t>::max(); }

  // It can use `credentials`.
  virtual bool has_tls() const { return false; }

  // Listens on a free port of 127.0.0.1 and prints one line on stdout: where, for Connect(). Serves both
  // methods until the process is killed.
  virtual void Serve() = 0;

  // All connections are established when it returns. The observer outlives the client.
  virtual std::unique_ptr<Client> Connect(const std::string& address, const Load& load,
                                          Observer& observer) = 0;

  // With these both sides show a certificate, and what crosses is encrypted. Set before Serve() or Connect()
  // is called.
  // Empty: no TLS.
  std::optional<TlsCredentials> credentials;
};

// The main() of each program: measures `peer` as the flags say (driver.cc).
int Main(int argc, char** argv, Peer& peer);

}  // namespace hawser::bench::peers

#endif  // HAWSER_BENCH_PEERS_PEER_H_
