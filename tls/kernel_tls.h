#ifndef HAWSER_TLS_KERNEL_TLS_H_
#define HAWSER_TLS_KERNEL_TLS_H_

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

#include "hawser/tls/traffic_keys.h"

namespace hawser::tls {

// Which connections leave their records to the kernel, where it has TLS (Linux with the module `tls`). There
// nothing is copied in between: what is sent goes from its segments to the socket, and what is received to
// its segments. The number of records that it opens is not known, so bytes alone count in a turn: a peer that
// sends a byte in each record takes more of it than in user space (rpc/PROTOCOL.md, "Drawbacks").
enum class KernelUse : uint8_t {
  kNever,

  // Those whose key lasts as long as the connection: with ChaCha20-Poly1305. Others stay in user space, where
  // OpenSSL changes the keys. A key of AES-GCM may protect 2^24.5 records (RFC 8446, 5.5), which at 100
  // Gbit/s is half a minute, and a kernel before Linux 6.14 can neither change its key nor hand the
  // connection back. To end each busy connection after so little, and fail its calls, is worse than to copy;
  // to go on with a worn key is worse, too. ChaCha20 for all would cost more than the copies do where the
  // processor has AES.
  // Linux 6.14 and later can change keys. That is not used yet.
  kWhereKeysLast,

  // All. With AES-GCM a connection ends before its key is worn: when a side in the kernel has sent 2^24
  // records, 256 GiB if they are full, or when one in user space changes its key, after half of that. For
  // connections that do not live so long, or callers that try again.
  kAlways,
};

// The records of TLS 1.3 of one connected TCP socket, as far as the kernel makes and reads them: each
// direction by itself.
// Thread:   one at a time. A child after fork() must not use it: both would count the same records.
// Lifetime: does not own the socket. The kernel keeps a direction until the socket is closed.
class KernelTls {
 public:
  KernelTls(int fd, bool is_client) : fd_(fd), is_client_(is_client) {}

  // False: it was found that this kernel has no TLS, or the module is not loaded and this process may not
  // load it. What is loaded later than the first attempt is not noticed.
  static bool MayExist();

  // From here on the kernel protects what is sent, or opens what is received, beginning with record
  // `sequence` under that key. False: it cannot, and nothing has changed.
  bool StartSending(const TrafficKey& key, uint64_t sequence);
  bool StartReceiving(const TrafficKey& key, uint64_t sequence);
  bool sends() const { return sends_; }
  bool receives() const { return receives_; }

  // What came from the peer. Before it says anything but kData, it may have changed what the segments hold.
  enum class Kind {
    kData,       // `bytes`, at least 1.
    kNothing,    // For now. The next record, once it is complete, makes an event of the socket.
    kOthers,     // Much that is no data; it is the turn of others, and more may be there.
    kEnd,        // The peer has closed the connection.
    kAlert,      // The peer's error: `code` of RFC 8446, 6.
    kKeyUpdate,  // The peer has changed its key. Nothing that follows can be read.
    kMalformed,  // A record was changed on its way, or is none.
    kBroken,     // The socket is: `code` is an errno.
  };
  struct Received {
    Kind kind;
    size_t bytes = 0;
    int code = 0;
  };
  Received Receive(const iovec* segments, size_t count);

  // sendmsg(2), not blocking. The kernel makes records of 16 KiB. Those that it took, and that find no room
  // in the socket, it keeps and sends by itself.
  ssize_t Send(const iovec* segments, size_t count);
  // If it fits into the socket. A fatal one ends the connection (RFC 8446, 6).
  void SendCloseNotify();
  void SendFatalAlert(uint8_t description);

 private:
  bool Start(int direction, const TrafficKey& key, uint64_t sequence);
  void SendAlert(uint8_t level, uint8_t description);
  Received TakeOther(int type, const iovec* segments, size_t bytes);
  Received TakeAlert(uint8_t byte);
  Kind TakeHandshake(uint8_t byte);

  const int fd_;
  const bool is_client_;
  bool attached_ = false;
  bool sends_ = false;
  bool receives_ = false;

  // What has come of a message or an alert that is not complete.
  bool has_alert_level_ = false;
  uint8_t message_type_ = 0;
  uint8_t message_header_bytes_ = 0;
  uint32_t message_length_ = 0;
  uint32_t message_missing_ = 0;
};

}  // namespace hawser::tls

#endif  // HAWSER_TLS_KERNEL_TLS_H_
