#ifndef HAWSER_TLS_CONTEXT_H_
#define HAWSER_TLS_CONTEXT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/mutex.h"
#include "hawser/tls/credential_files.h"
#include "hawser/tls/credentials.h"
#include "hawser/tls/openssl.h"
#include "hawser/tls/resumption.h"
#include "hawser/tls/side.h"

namespace hawser::tls {

class Session;

// One use of credentials, from which the sessions of any number of connections are made: the files, read
// again when they change, and the tickets with which a client resumes its sessions.
// Thread:   any.
// Lifetime: a session does not need it once it was made, except a client's, which keeps its tickets in it.
class Context : public std::enable_shared_from_this<Context> {
 public:
  // Reads the files. All that ask for the same credentials share one context, while one of them has it.
  // `on_stale` gets why changed files could not be used: once for each such change, on the thread that makes
  // a session, with no lock held. InvalidArgument: a file is missing, unreadable, a pipe or a device, larger
  // than 4 MiB or no PEM, the key does not fit the certificate, or TLS 1.3 cannot sign with it; the text
  // names the file and says why in words of ours.
  static absl::StatusOr<std::shared_ptr<Context>> Create(
      const TlsCredentials& credentials, std::function<void(const absl::Status& why)> on_stale);

  Context(const TlsCredentials& credentials, std::function<void(const absl::Status& why)> on_stale);

  // To be called before sessions of a server are made. It reads the files if they have changed, so it may
  // wait for a disk. InvalidArgument: no client could accept the certificate, because it is not valid now,
  // has no name, or does not allow this use. After OK changed files of which that is so are not used, as
  // those that cannot be read. A certificate that is not valid yet is used once it is.
  absl::Status UseForServer();

  // For a connected, non-blocking socket, whose owner keeps it open as long as the session lives. For a
  // client: `host` is that of the address it connects to, without a port, and `peer` is the peer in numbers,
  // for which tickets are kept. ResourceExhausted: no memory. InvalidArgument: `host` can be in no
  // certificate.
  absl::StatusOr<std::unique_ptr<Session>> NewSession(Side side, int fd, absl::string_view host,
                                                      absl::string_view peer);

  // Handshakes of all sessions that were made here, on that side. A peer that leaves before the end counts
  // nowhere.
  struct Handshakes {
    uint64_t full = 0;     // With certificates,
    uint64_t resumed = 0;  // or with a ticket.
    uint64_t failed = 0;
  };
  Handshakes handshakes(Side side) const;

  // How often a handshake looks at the files, at most.
  static constexpr absl::Duration kLookInterval = absl::Seconds(1);

 private:
  friend class Session;

  absl::StatusOr<SslContextPtr> Load() const;
  absl::Status Start();
  // Made of the files as they are now, or were when they could last be used.
  SslContextPtr Current(uint64_t* generation);
  // Reads the files if they have changed.
  void Refresh();

  TicketStore& tickets() { return tickets_; }

  struct HandshakeCounts {
    std::atomic<uint64_t> full{0}, resumed{0}, failed{0};
  };
  HandshakeCounts& counts(Side side) { return counts_[side == Side::kClient ? 0 : 1]; }

  std::array<HandshakeCounts, 2> counts_;  // By side.
  const std::string server_name_;          // TlsCredentials::server_name.
  const CredentialFiles files_;
  const std::function<void(const absl::Status& why)> on_stale_;
  Mutex mutex_;
  SslContextPtr current_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;         // Counts how often current_ was replaced.
  bool serves_ ABSL_GUARDED_BY(mutex_) = false;             // After UseForServer().
  CredentialFiles::Stamps stamps_ ABSL_GUARDED_BY(mutex_);  // When the files were last read, usable or not.
  // Why the last reading failed, without the time; empty: it did not.
  std::string stale_ ABSL_GUARDED_BY(mutex_);
  absl::Duration next_look_ ABSL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();  // By SteadyNow().
  TicketStore tickets_;
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_CONTEXT_H_
