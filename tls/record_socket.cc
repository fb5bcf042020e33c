#include "hawser/tls/record_socket.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace hawser::tls {
namespace {

// What is read ahead of a short record. From a peer that sends long ones nothing is: OpenSSL then has the
// kernel copy each record to where it decrypts it.
constexpr size_t kAheadBytes = 16 * 1024;
constexpr size_t kLongBytes = 4 * 1024;

// Bytes of records that wait for the socket. Write() stops at one; more are answers to requests for new keys.
constexpr size_t kUnsentBytesMax = 64 * 1024;

constexpr size_t kFirstBytes = 16;

bool IsTlsRecord(absl::string_view bytes) { return !bytes.empty() && bytes[0] >= 20 && bytes[0] <= 24; }

}  // namespace

struct RecordSocket::Bio {
  static RecordSocket& Of(BIO* bio) { return *static_cast<RecordSocket*>(BIO_get_data(bio)); }

  static int Read(BIO* bio, char* out, size_t max, size_t* read) {
    BIO_clear_retry_flags(bio);
    RecordSocket& socket = Of(bio);
    if (socket.budget_bytes_ == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    if (socket.ahead_begin_ == socket.ahead_end_) {
      // A record's header is 5 bytes, and its length is not known yet.
      const bool is_body = max > SSL3_RT_HEADER_LENGTH;
      if (is_body) socket.bulk_ = max >= kLongBytes;
      if (socket.bulk_ || !socket.may_read_ahead_) {
        *read = socket.Receive(bio, out, max);
        return *read > 0;
      }
      if (socket.ahead_ == nullptr) socket.ahead_.reset(new char[kAheadBytes]);
      socket.ahead_begin_ = 0;
      socket.ahead_end_ = socket.Receive(bio, socket.ahead_.get(), kAheadBytes);
      if (socket.ahead_end_ == 0) return 0;
    }
    *read = std::min(max, socket.ahead_end_ - socket.ahead_begin_);
    std::memcpy(out, socket.ahead_.get() + socket.ahead_begin_, *read);
    socket.ahead_begin_ += *read;
    return 1;
  }

  static int Write(BIO* bio, const char* bytes, size_t count, size_t* written) {
    BIO_clear_retry_flags(bio);
    if (!Of(bio).Put(bytes, count)) return 0;
    *written = count;
    return 1;
  }

  static long Control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

  static BIO_METHOD* Method() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "hawser socket");
      BIO_meth_set_read_ex(made, Read);
      BIO_meth_set_write_ex(made, Write);
      BIO_meth_set_ctrl(made, Control);
      BIO_meth_set_create(made, [](BIO* bio) {
        BIO_set_init(bio, 1);
        return 1;
      });
      return made;
    }();
    return method;
  }
};

void RecordSocket::AttachTo(SSL& connection) {
  BIO* const bio = BIO_new(Bio::Method());
  if (bio == nullptr) return;
  BIO_set_data(bio, this);
  SSL_set_bio(&connection, bio, bio);
}

// recv(2) into `out`; 0: nothing, and either the retry flag of `bio` is set or `closed_`.
size_t RecordSocket::Receive(bio_st* bio, char* out, size_t max) {
  if (socket_empty_) {
    drained_ = true;
    BIO_set_retry_read(bio);
    return 0;
  }
  ssize_t n;
  do {
    n = recv(fd_, out, max, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    socket_empty_ = true;
    drained_ = true;
    BIO_set_retry_read(bio);
    return 0;
  }
  if (n <= 0) {
    socket_errno_ = n < 0 ? errno : 0;
    closed_ = true;
    return 0;
  }
  const auto bytes = static_cast<size_t>(n);
  if (first_bytes_.size() < kFirstBytes)
    first_bytes_.append(out, std::min(bytes, kFirstBytes - first_bytes_.size()));
  if (limits_hello_ && !hello_limit_.Allows(absl::MakeSpan(reinterpret_cast<const uint8_t*>(out), bytes))) {
    hello_is_too_long_ = true;
    closed_ = true;
    return 0;
  }
  socket_empty_ = bytes < max;
  Charge(bytes);
  return bytes;
}

absl::string_view RecordSocket::NotTls() {
  if (first_bytes_.empty() || IsTlsRecord(first_bytes_)) return "";
  char more[kFirstBytes];
  const ssize_t n = recv(fd_, more, kFirstBytes - first_bytes_.size(), MSG_PEEK | MSG_DONTWAIT);
  first_bytes_.append(more, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  return first_bytes_;
}

// Sends, or keeps what does not fit into the socket.
bool RecordSocket::Put(const char* bytes, size_t count) {
  // OpenSSL has nothing more to send then but an alert.
  if (refuses_writes_) return false;
  size_t sent = 0;
  if (!has_unsent()) {
    ssize_t n;
    do {
      n = send(fd_, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != ENOMEM) {
      socket_errno_ = errno;
      return false;
    }
    sent = static_cast<size_t>(std::max<ssize_t>(n, 0));
    unsent_.clear();
    unsent_begin_ = 0;
  }
  if (sent == count) return true;
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<ptrdiff_t>(unsent_begin_));
  unsent_begin_ = 0;
  if (unsent_.size() + count - sent > kUnsentBytesMax) {
    socket_errno_ = ENOBUFS;
    return false;
  }
  unsent_.insert(unsent_.end(), bytes + sent, bytes + count);
  return true;
}

bool RecordSocket::Flush() {
  while (has_unsent()) {
    const ssize_t n = send(fd_, unsent_.data() + unsent_begin_, unsent_.size() - unsent_begin_,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) errno = EAGAIN;
      return false;
    }
    unsent_begin_ += static_cast<size_t>(n);
  }
  unsent_ = {};
  unsent_begin_ = 0;
  return true;
}

}  // namespace hawser::tls
