#ifndef HAWSER_TLS_SESSION_H_
#define HAWSER_TLS_SESSION_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "hawser/tls/context.h"
#include "hawser/tls/openssl.h"
#include "hawser/tls/peer_identity.h"

struct x509_store_ctx_st;

namespace hawser::tls {

// TLS 1.3 on one connected, non-blocking socket. After the handshake it reads and writes as readv(2) and writev(2) do.
// A record that did not fit into the socket counts as written and is kept here until Flush(): 17 KiB at most, beside
// what OpenSSL holds of a record that has come in part (17 KiB) and what it read ahead.
// Thread:   one at a time.
// Lifetime: ends before the socket, which it does not own, is closed.
// Failure:  the first one stays; see error().
class Session {
 public:
  // By Context::NewSession().
  struct Parts {
    std::shared_ptr<Context> context;
    Side side = Side::kClient;
    int fd = -1;
    SslPtr ssl;
    uint64_t generation = 0;  // Of the files that `ssl` was made of.
    // A client's:
    std::string name;          // That the server's certificate must have.
    bool name_is_uri = false;  // OpenSSL knows only DNS names and IP addresses.
    std::string ticket_key;    // Where its tickets are kept.
  };
  explicit Session(Parts parts);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  enum class Progress {
    kDone,
    kWantRead,   // Call again when the socket is readable,
    kWantWrite,  // or writable.
    kFailed,     // See error(). What the peer has to hear of it was sent, if it fitted into the socket.
  };
  Progress Handshake();

  // After kDone. Fills the segments as far as bytes have come. Returns how many, at least 1; 0: the peer has closed the
  // connection; -1 with errno: EAGAIN, or an error, EPROTO if it is one of TLS: see error(). One call decrypts at most
  // what the segments take, and reads at most 64 KiB beyond that.
  ssize_t Read(const iovec* segments, size_t count);
  // The last Read() left nothing behind: only what arrives later can be read. Otherwise call it again, though the socket
  // may report nothing.
  bool drained() const { return drained_; }

  // After kDone. Returns how many bytes it took, at least 1; -1 with errno as Read(). EAGAIN: has_unsent(), and the
  // socket is full. After another error call Read(), though the socket may report nothing: the peer may have said why.
  ssize_t Write(const iovec* segments, size_t count);
  bool has_unsent() const { return unsent_begin_ < unsent_.size(); }
  // Sends what is kept. False: not all of it, with errno as Read().
  bool Flush();

  // Tells the peer that nothing more follows (close_notify), if that fits into the socket.
  void End();

  // Why it failed. Unauthenticated: one side does not believe the other, or they do not agree on TLS 1.3 with ALPN
  // "hawser/1"; DataLoss: a record after the handshake is malformed; both carry Violation::kTls. Unavailable: the
  // connection was lost.
  const absl::Status& error() const { return error_; }

  // After kDone. Never null.
  const std::shared_ptr<const PeerIdentity>& peer_identity() const { return peer_identity_; }
  bool resumed() const;
  // "TLS_AES_128_GCM_SHA256".
  std::string cipher() const;

 private:
  friend class Context;
  struct Bio;  // What OpenSSL reads from and writes to.

  Progress Fail(absl::Status why);
  // -1 with errno EPROTO, or that of the socket.
  ssize_t FailIo();
  ssize_t FailWrite();
  // What the errors that OpenSSL has queued mean.
  absl::Status Explain();
  absl::Status CheckPeer();
  size_t Receive(bio_st* bio, char* out, size_t max);
  bool Put(const char* bytes, size_t count);
  void KeepTicket(const ssl_session_st& session);
  int OnVerified(bool ok, x509_store_ctx_st& verification);

  const Parts parts_;
  bool started_ = false;
  bool done_ = false;
  bool ended_ = false;
  absl::Status error_;
  int errno_ = 0;        // Of the socket, if that broke.
  std::string refused_;  // Why the peer's certificate was refused.
  std::shared_ptr<const PeerIdentity> peer_identity_;
  absl::Time ticket_end_ = absl::InfiniteFuture();  // Of the ticket that it was resumed with.

  // Reading. What was read ahead of OpenSSL is ahead_[ahead_begin_, ahead_end_).
  std::unique_ptr<char[]> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  bool bulk_ = false;  // The last record was long: nothing is read ahead, so that it is copied once less.
  size_t budget_bytes_ = 0;    // Of the current call.
  bool socket_empty_ = false;  // Found by the current call.
  bool drained_ = true;
  bool closed_ = false;      // The peer has closed the connection, or it broke: errno_.
  std::string first_bytes_;  // That the peer has sent, to tell what it speaks.

  // Writing.
  std::vector<char> unsent_;
  size_t unsent_begin_ = 0;
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_SESSION_H_
