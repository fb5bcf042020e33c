#include "hawser/tls/resumption.h"

#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "hawser/tls/certificate.h"

namespace hawser::tls {
namespace {

// How long a session can be resumed after the handshake that showed the certificates.
constexpr absl::Duration kResumptionMax = absl::Hours(1);

constexpr size_t kTicketsPerPeerMax = 4;
constexpr size_t kTicketPeersMax = 256;

// A ticket has the client's certificate in it, and is a part of the next ClientHello, which may have 16 KiB.
// A handshake with certificates is as cheap as one with a larger ticket.
constexpr size_t kTicketBytesMax = 8 * 1024;

// Writes into the ticket of a server until when the certificates that the client has shown are valid: when
// the ticket comes back, only the client's own certificate is in it, and OpenSSL does not look at its time
// again.
int SealTicket(SSL* ssl, void*) {
  SSL_SESSION* const session = SSL_get_session(ssl);
  const STACK_OF(X509)* const chain = SSL_get0_verified_chain(ssl);
  if (chain == nullptr) return 1;  // It was resumed itself: what was said first goes on.
  const int64_t end = absl::ToUnixSeconds(std::min(EndOf(*chain), absl::Now() + kResumptionMax));
  return SSL_SESSION_set1_ticket_appdata(session, &end, sizeof(end));
}

SSL_TICKET_RETURN OpenTicket(SSL*, SSL_SESSION* session, const unsigned char*, size_t,
                             SSL_TICKET_STATUS status, void*) {
  if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
    return SSL_TICKET_RETURN_IGNORE_RENEW;
  void* data = nullptr;
  size_t bytes = 0;
  int64_t end = 0;
  if (SSL_SESSION_get0_ticket_appdata(session, &data, &bytes) != 1 || bytes != sizeof(end)) {
    return SSL_TICKET_RETURN_IGNORE_RENEW;
  }
  std::memcpy(&end, data, sizeof(end));
  return absl::FromUnixSeconds(end) > absl::Now() ? SSL_TICKET_RETURN_USE_RENEW
                                                  : SSL_TICKET_RETURN_IGNORE_RENEW;
}

}  // namespace

void AllowResumption(SSL_CTX& context) {
  // A server keeps no session. A client keeps its own in a TicketStore.
  SSL_CTX_set_session_cache_mode(&context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_set_timeout(&context, absl::ToInt64Seconds(kResumptionMax));
  // Each connection brings the ticket for the one that replaces it. OpenSSL would send two, and the second
  // takes a twelfth of what a full handshake takes.
  SSL_CTX_set_num_tickets(&context, 1);
  SSL_CTX_set_session_ticket_cb(&context, SealTicket, OpenTicket, nullptr);
}

// A copy, because OpenSSL makes the session of a connection that ends without close_notify useless.
Ticket TicketOf(const SSL_SESSION& session, const SSL& connection, absl::Time valid_until) {
  const unsigned char* ticket;
  size_t ticket_bytes = 0;
  SSL_SESSION_get0_ticket(&session, &ticket, &ticket_bytes);
  if (ticket_bytes > kTicketBytesMax) return {};
  const STACK_OF(X509)* const chain = SSL_get0_verified_chain(&connection);
  return {.session = SslSessionPtr(SSL_SESSION_dup(&session)),
          .valid_until = chain == nullptr ? valid_until : EndOf(*chain)};
}

void TicketStore::StartGeneration(uint64_t generation) {
  MutexLock lock(mutex_);
  generation_ = generation;
  tickets_.clear();
}

void TicketStore::Keep(const std::string& key, uint64_t generation, Ticket ticket) {
  MutexLock lock(mutex_);
  if (generation != generation_) return;
  if (tickets_.size() >= kTicketPeersMax && tickets_.find(key) == tickets_.end())
    tickets_.erase(tickets_.begin());
  std::deque<Ticket>& tickets = tickets_[key];
  if (tickets.size() >= kTicketsPerPeerMax) tickets.pop_front();
  tickets.push_back(std::move(ticket));
}

Ticket TicketStore::Take(const std::string& key) {
  MutexLock lock(mutex_);
  const auto found = tickets_.find(key);
  const absl::Time now = absl::Now();
  while (found != tickets_.end() && !found->second.empty()) {
    Ticket ticket = std::move(found->second.back());
    found->second.pop_back();
    if (ticket.valid_until > now) return ticket;
  }
  if (found != tickets_.end()) tickets_.erase(found);
  return {};
}

}  // namespace hawser::tls
