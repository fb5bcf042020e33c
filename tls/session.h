#ifndef HAWSER_TLS_SESSION_H_
#define HAWSER_TLS_SESSION_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "hawser/tls/context.h"
#include "hawser/tls/kernel_tls.h"
#include "hawser/tls/openssl.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/tls/record_socket.h"
#include "hawser/tls/secret.h"
#include "hawser/tls/server_name.h"
#include "hawser/tls/side.h"
#include "hawser/tls/traffic_keys.h"

struct x509_store_ctx_st;

namespace hawser::tls {

// TLS 1.3 on one connected, non-blocking socket. After the handshake it reads and writes as readv(2) and
// writev(2) do. A record that did not fit into the socket counts as written and is kept here until Flush():
// 17 KiB at most, beside what OpenSSL holds of a record that has come in part (17 KiB) and what it read
// ahead.
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
    uint64_t generation = 0;  // That of the files that `ssl` was made of.
    // A client's:
    ServerName server_name;
    std::string ticket_key;  // Where its tickets are kept.
  };
  explicit Session(Parts parts);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Records after which a key of AES-GCM is changed. RFC 8446, 5.5, allows 2^24.5 full ones.
  static constexpr uint64_t kKeyRecordsMax = uint64_t{1} << 23;
  // Records after which a connection in the kernel ends, since the kernel cannot change its key. This counts
  // what the kernel was asked for. It makes more records when the socket is full, or when the segments are in
  // very many pages: up to 1.4 times as many keep the key within 2^24.5.
  static constexpr uint64_t kKernelKeyRecordsMax = uint64_t{1} << 24;

  enum class Progress {
    kDone,
    kWantRead,   // Call again when the socket is readable,
    kWantWrite,  // or writable.
    kFailed,     // See error(). What the peer has to hear of it was sent, if it fitted into the socket.
  };
  Progress Handshake();

  // Call before the handshake, if MoveToKernel() follows it.
  void AllowKernel(KernelUse use);
  // Moves each direction to the kernel, if `use` wants it and the kernel can. Call it after kDone, once the
  // caller has read what the peer sends before it waits for this side. Receiving stays in user space if a
  // part of the next record has come; sending stays there while has_unsent(). The other methods work as
  // before, but a peer that changes its keys ends the connection.
  void MoveToKernel();
  bool sends_in_kernel() const { return kernel_.sends(); }
  bool receives_in_kernel() const { return kernel_.receives(); }

  // After kDone. Fills the segments as far as bytes have come. Returns how many, at least 1; 0: the peer has
  // closed the connection; -1 with errno: EAGAIN, or an error, EPROTO if it is one of TLS: see error(). One
  // call decrypts at most what the segments take, and reads at most 64 KiB beyond that, or the 16 next
  // requests for new keys. Each record counts as 1 KiB more than it has, so that a peer gains nothing by very
  // short ones.
  ssize_t Read(const iovec* segments, size_t count);
  // What the last Read() has cost, in bytes that take as long to decrypt: those that it took from the socket,
  // and what records and requests for new keys count as. 0: it only returned what was decrypted before, or
  // the kernel decrypts.
  size_t cost_bytes() const { return socket_.cost_bytes(); }
  // The last Read() left nothing behind: only what arrives later can be read. Otherwise call it again, though
  // the socket may report nothing.
  bool drained() const { return socket_.drained(); }

  // After kDone. Returns how many bytes it took, at least 1; -1 with errno as Read(). EAGAIN: has_unsent(),
  // and the socket is full. After another error call Read(), though the socket may report nothing: the peer
  // may have said why.
  ssize_t Write(const iovec* segments, size_t count);
  bool has_unsent() const { return socket_.has_unsent(); }
  // The length of that, encrypted.
  size_t unsent_bytes() const { return socket_.unsent_bytes(); }
  // Sends what is kept. False: not all of it, with errno as Read().
  bool Flush() { return socket_.Flush(); }

  // Tells the peer that nothing more follows (close_notify), if that fits into the socket.
  void End();

  // Why it failed. Unauthenticated: one side does not trust the other, or they do not agree on TLS 1.3 with
  // ALPN "hawser/1"; DataLoss: a record after the handshake is malformed; both carry Violation::kTls.
  // Unavailable: the connection was lost, or one of its keys is worn and the kernel cannot change it.
  const absl::Status& error() const { return error_; }

  // After kDone. Never null.
  const std::shared_ptr<const PeerIdentity>& peer_identity() const { return peer_identity_; }
  bool resumed() const;
  // After kDone. The same at both ends, another for each session (a resumed one is another) and each `label`,
  // which is of the form "EXPORTER-..." (RFC 5705).
  absl::StatusOr<Secret> ExportSecret(absl::string_view label);
  // "TLS_AES_128_GCM_SHA256".
  std::string cipher() const;

  // For tests: after how many records a key of AES-GCM is worn. In user space it is changed then; in the
  // kernel the connection ends.
  void set_key_records_max(uint64_t records) { key_records_max_ = records; }
  // For tests, which do with it what no peer of ours does.
  ssl_st* ssl() const { return parts_.ssl.get(); }

 private:
  friend class Context;

  Progress Fail(absl::Status why);
  // -1 with errno EPROTO, or that of the socket.
  ssize_t FailIo();
  ssize_t FailWrite();
  // What the errors that OpenSSL has queued mean.
  absl::Status Explain();
  void KeepTicket(const ssl_session_st& session);
  int OnVerified(bool ok, x509_store_ctx_st& verification);

  // What is read ahead could not be moved to the kernel.
  bool MayReadAhead() const { return !keeps_secrets_; }
  void OnSecret(absl::string_view line);
  void OnMessage(bool is_written, int type, absl::Span<const uint8_t> bytes);
  std::optional<Aead> aead() const;
  ssize_t ReadFromKernel(const iovec* segments, size_t count);
  ssize_t WriteToKernel(const iovec* segments, size_t count);

  const Parts parts_;
  RecordSocket socket_;
  absl::Status error_;
  std::string refused_;  // Why the peer's certificate was refused.
  std::shared_ptr<const PeerIdentity> peer_identity_;
  absl::Time ticket_end_ = absl::InfiniteFuture();  // The end of the ticket that it was resumed with.

  // Keys. The records that each has protected so far.
  uint64_t records_written_ = 0;
  uint64_t records_read_ = 0;
  uint64_t key_records_max_ = kKeyRecordsMax;
  TrafficSecret send_secret_;
  TrafficSecret receive_secret_;
  KernelTls kernel_;
  KernelUse kernel_use_ = KernelUse::kNever;
  // From the handshake to MoveToKernel(), and only if that may need the secrets. OpenSSL has them for as long
  // as it lives.
  bool keeps_secrets_ = false;
  bool could_not_answer_ = false;  // The peer asks for a new key of this side, whose kernel sends.

  bool started_ = false;
  bool done_ = false;
  bool ended_ = false;
  bool write_failed_ = false;
  int broken_ = 0;  // errno of the socket, once FailWrite() has looked for what the peer says.
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_SESSION_H_
