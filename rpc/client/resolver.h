#ifndef HAWSER_RPC_CLIENT_RESOLVER_H_
#define HAWSER_RPC_CLIENT_RESOLVER_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "hawser/base/socket_address.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

// Looks up names on threads of its own. A look-up cannot be stopped, and may hang for as long as the name
// server does not answer, so the number of threads is bounded. Clients that ask for the same name share one
// look-up, and with more than kThreadsMax names at once the later ones wait for a thread.
// Thread:   any.
// Lifetime: the destructor waits for look-ups.
class Resolver {
 public:
  using Addresses = absl::StatusOr<std::vector<SocketAddress>>;
  using LookUp = std::function<Addresses(const transport::Uri&)>;

  static constexpr size_t kThreadsMax = 16;

  // Asks for a name. It may be destroyed before the answer.
  class Client {
   public:
    virtual ~Client() = default;
    // Called once, on a thread of the resolver, which holds a reference meanwhile. Must return soon.
    virtual void OnLookedUp(const Addresses& addresses) = 0;
  };

  explicit Resolver(LookUp look_up = transport::Resolve) : look_up_(std::move(look_up)) {}
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // The one of this process; never destroyed. A child after fork() has another.
  static Resolver& Process();

  // ResourceExhausted: the system has no thread for it, and this has none yet.
  absl::Status Start(const transport::Uri& uri, std::weak_ptr<Client> client);

 private:
  // One look-up, running or waiting for a thread.
  struct Job {
    transport::Uri uri;
    std::vector<std::weak_ptr<Client>> clients;
  };

  void Run();
  // The next job that still has a client; false: there is none, and the thread ends.
  bool TakeNext(std::string* key, transport::Uri* uri);
  std::vector<std::weak_ptr<Client>> TakeClients(const std::string& key);

  const LookUp look_up_;
  absl::Mutex mutex_;
  std::map<std::string, Job> jobs_ ABSL_GUARDED_BY(mutex_);  // By host and port.
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);  // Keys of `jobs_`, oldest first.
  size_t threads_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::CondVar thread_ended_;  // Signals the end of the last thread.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_RESOLVER_H_
