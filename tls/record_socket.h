#ifndef HAWSER_TLS_RECORD_SOCKET_H_
#define HAWSER_TLS_RECORD_SOCKET_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/tls/hello_limit.h"
#include "hawser/tls/openssl.h"

namespace hawser::tls {

// What OpenSSL reads the records of a session from, and writes them to: a connected, non-blocking socket,
// without SIGPIPE. It bounds what one call of the session reads (a turn), reads ahead of short records, and
// keeps what does not fit into the socket.
// Thread:   one at a time.
// Lifetime: of the session, whose OpenSSL connection calls it. It neither moves nor owns the socket.
// Failure:  the first error of the socket stays in socket_errno(), until that is taken or set.
class RecordSocket {
 public:
  // The ClientHello that a server reads is bounded by HelloLimit.
  RecordSocket(int fd, bool is_server) : fd_(fd), limits_hello_(is_server) {}
  RecordSocket(const RecordSocket&) = delete;
  RecordSocket& operator=(const RecordSocket&) = delete;

  // From here on `connection` reads and writes by this. If there is no memory for that, it reports later that
  // it has nothing to read from.
  void AttachTo(ssl_st& connection);

  // Until now nothing but the handshake was read.
  void EndHandshake() { limits_hello_ = bulk_ = false; }

  // --- Reading

  // Begins a turn that may cost what `asked_bytes` of data do, and 64 KiB. `may_read_ahead`: into a buffer of
  // 16 KiB, if the peer's records are short. After the turn call FreeAhead().
  void StartTurn(size_t asked_bytes, bool may_read_ahead) {
    socket_empty_ = false;
    may_read_ahead_ = may_read_ahead;
    // The budget includes what surrounds each record.
    budget_bytes_ = asked_bytes + asked_bytes / 8 + kOverheadBytesMax;
  }
  // The turn costs more than the bytes that were read: there is a record, or a message of the handshake after
  // it.
  void ChargeRecord() { Charge(kRecordCost); }
  void ChargeMessage() { Charge(kMessageCost); }
  // What the turns have cost since ResetCost(), in bytes that take as long to decrypt.
  size_t cost_bytes() const { return cost_bytes_; }
  void ResetCost() { cost_bytes_ = 0; }

  // What was read ahead of OpenSSL, which has not taken it yet.
  bool has_ahead() const { return ahead_begin_ != ahead_end_; }
  void FreeAhead() {
    if (!has_ahead()) ahead_.reset();
  }

  // The socket was found empty: only what arrives later can be read. Where something is left that the socket
  // does not know of, the session says otherwise.
  bool drained() const { return drained_; }
  void set_drained(bool drained) { drained_ = drained; }

  // The peer has closed the connection, or it broke: socket_errno().
  bool is_closed() const { return closed_; }
  void set_closed() { closed_ = true; }
  // Then also is_closed().
  bool hello_is_too_long() const { return hello_is_too_long_; }
  // The first bytes of the peer, 16 at most, if these are no TLS. Empty: they are, or nothing has come.
  absl::string_view NotTls();

  // --- Writing

  bool has_unsent() const { return unsent_begin_ < unsent_.size(); }
  size_t unsent_bytes() const { return unsent_.size() - unsent_begin_; }
  // Sends what is kept. False: not all of it, with errno: EAGAIN, or an error, which socket_errno() does not
  // have.
  bool Flush();
  // The kernel makes the records now, and would take one of OpenSSL for data.
  void RefuseWrites() { refuses_writes_ = true; }

  // 0: the socket has no error. ENOBUFS: the peer does not read, and more is kept for it than is allowed.
  int socket_errno() const { return socket_errno_; }
  void set_socket_errno(int error) { socket_errno_ = error; }
  int TakeSocketErrno() { return std::exchange(socket_errno_, 0); }

 private:
  struct Bio;  // OpenSSL's view of it.

  // Bytes that one turn reads beyond what it was asked for. Only records without data of the peer's program,
  // such as requests for new keys, or very short ones, come to so many: it is the others' turn then. A record
  // takes as long as decrypting 1 KiB, however short it is, so it counts as so many bytes more. A request for
  // new keys has 27 bytes, and takes as long as some KiB.
  static constexpr size_t kOverheadBytesMax = 64 * 1024;
  static constexpr size_t kRecordCost = 1024;
  static constexpr size_t kMessageCost = 4 * 1024;

  void Charge(size_t bytes) {
    cost_bytes_ += bytes;
    budget_bytes_ -= std::min(bytes, budget_bytes_);
  }
  size_t Receive(bio_st* bio, char* out, size_t max);
  bool Put(const char* bytes, size_t count);

  // Reading. What was read ahead of OpenSSL is ahead_[ahead_begin_, ahead_end_).
  std::unique_ptr<char[]> ahead_;
  size_t ahead_begin_ = 0;
  size_t ahead_end_ = 0;
  size_t budget_bytes_ = 0;  // What the current turn may still cost,
  size_t cost_bytes_ = 0;    // and what it and those before have cost.
  HelloLimit hello_limit_;
  std::string first_bytes_;  // What the peer has sent first: it shows which protocol the peer speaks.

  // Writing: unsent_[unsent_begin_, end) waits for the socket.
  std::vector<char> unsent_;
  size_t unsent_begin_ = 0;

  const int fd_;
  int socket_errno_ = 0;
  bool may_read_ahead_ = false;
  bool bulk_ = false;  // The last record was long: nothing is read ahead, so that it is copied once less.
  bool socket_empty_ = false;  // Found by the current turn.
  bool drained_ = true;
  bool closed_ = false;
  bool limits_hello_;
  bool hello_is_too_long_ = false;
  bool refuses_writes_ = false;
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_RECORD_SOCKET_H_
