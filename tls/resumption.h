#ifndef HAWSER_TLS_RESUMPTION_H_
#define HAWSER_TLS_RESUMPTION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "hawser/base/mutex.h"
#include "hawser/tls/openssl.h"

// A session that was resumed needs no certificates: the client sends a ticket that it got in an earlier
// session (RFC 8446, 2.2). The server keeps nothing, since all is in the ticket; the client keeps its
// tickets.
namespace hawser::tls {

// Lets a server of `context` give tickets and take them back, for an hour at most, and not longer than the
// certificates are valid that the client has shown. They are sealed with a key of `context`: another SSL_CTX,
// such as one that is made of changed files, takes none of them. Lets a client of it get tickets, which it
// keeps itself.
void AllowResumption(ssl_ctx_st& context);

// What a client resumes a session with. It is used once (RFC 8446, C.4), and not longer than the server's
// certificates are valid.
struct Ticket {
  SslSessionPtr session;
  absl::Time valid_until;
};

// A ticket of `session`, which OpenSSL has given to a client over `connection`.
// `valid_until` is that of the ticket with which the connection was resumed, if it was. Null: the ticket is
// so long that a handshake with certificates is as cheap, or there is no memory.
Ticket TicketOf(const ssl_session_st& session, const ssl_st& connection, absl::Time valid_until);

// The tickets of a client: four for each peer, of 256 peers.
// Thread: any.
class TicketStore {
 public:
  // From here on only sessions of this generation of credentials are resumed: forgets all others.
  void StartGeneration(uint64_t generation);

  // `generation`: of the credentials that the session was made with. If it has ended, the ticket is dropped.
  void Keep(const std::string& key, uint64_t generation, Ticket ticket);
  // The newest that is valid. Null: there is none.
  Ticket Take(const std::string& key);

 private:
  Mutex mutex_;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, std::deque<Ticket>> tickets_ ABSL_GUARDED_BY(mutex_);  // By peer and host.
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_RESUMPTION_H_
