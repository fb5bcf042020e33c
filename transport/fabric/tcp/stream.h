#ifndef HAWSER_TRANSPORT_FABRIC_TCP_STREAM_H_
#define HAWSER_TRANSPORT_FABRIC_TCP_STREAM_H_

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "hawser/base/unique_fd.h"
#include "hawser/tls/session.h"
#include "hawser/transport/fabric/tcp/options.h"

namespace hawser::fabric {

// The bytes of one TCP connection: as they are, or through TLS.
// Thread:   one at a time.
class Stream {
 public:
  Stream() = default;
  explicit Stream(UniqueFd socket) : socket_(std::move(socket)) {}

  bool is_open() const { return socket_.is_open(); }
  int fd() const { return socket_.get(); }

  // From here on everything goes through `session`, of this socket. Its handshake comes first.
  void StartTls(std::unique_ptr<tls::Session> session, const TcpFabricOptions& options) {
    tls_ = std::move(session);
    tls_->AllowKernel(options.kernel_tls);
    if (options.tls_key_records_max != 0) tls_->set_key_records_max(options.tls_key_records_max);
  }
  // After the handshake of TLS, if there is one: the kernel encrypts from here on, if it can, which
  // `counters` count. They may be null.
  void MoveToKernel(TcpFabricCounters* counters) {
    if (tls_ == nullptr) return;
    tls_->MoveToKernel();
    if (counters == nullptr) return;
    counters->kernel_tls_sends.fetch_add(tls_->sends_in_kernel(), std::memory_order_relaxed);
    counters->kernel_tls_receives.fetch_add(tls_->receives_in_kernel(), std::memory_order_relaxed);
  }
  // Null: no TLS.
  tls::Session* tls() const { return tls_.get(); }
  // Drops the session, and returns the socket, which is the caller's to close.
  UniqueFd& EndTls() {
    tls_.reset();
    return socket_;
  }

  // readv(2), not blocking.
  ssize_t Receive(const iovec* segments, size_t count) {
    if (tls_ != nullptr) [[unlikely]]
      return tls_->Read(segments, count);
    // For one segment recv(2) is cheaper than readv(2).
    return count == 1 ? recv(socket_.get(), segments->iov_base, segments->iov_len, MSG_DONTWAIT)
                      : readv(socket_.get(), segments, static_cast<int>(count));
  }
  // Whether only what arrives later can be received, after a Receive() that returned `got` of `asked` bytes,
  // or -1 with EAGAIN. Otherwise the socket may report nothing, and the bytes that TLS has read are there all
  // the same.
  bool IsEmptyAfter(ssize_t got, size_t asked) const {
    if (tls_ != nullptr) [[unlikely]]
      return tls_->drained();
    return got < static_cast<ssize_t>(asked);
  }

  // What a Receive() that returned `got` bytes has cost, in bytes: with TLS a short record costs more than
  // its bytes.
  size_t CostOf(ssize_t got) const {
    const auto bytes = static_cast<size_t>(got);
    return tls_ == nullptr ? bytes : std::max(bytes, tls_->cost_bytes());
  }

  // Bytes wait in the socket; with TLS perhaps no more than a part of a record. False, too, after the peer's
  // end.
  bool HasUnread() const {
    char byte;
    return is_open() && recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
  }

  // Bytes that Send() has taken, and that the peer's host has not acknowledged. With TLS they are counted as
  // they are encrypted. Those of a record that TLS in the kernel keeps are not counted.
  size_t UnacknowledgedBytes() const {
    int bytes = 0;
    if (!is_open() || ioctl(socket_.get(), SIOCOUTQ, &bytes) != 0 || bytes < 0) return 0;
    return static_cast<size_t>(bytes) + (tls_ != nullptr ? tls_->unsent_bytes() : 0);
  }

  // sendmsg(2), not blocking. What it has taken can still be unsent.
  ssize_t Send(iovec* segments, size_t count) {
    if (tls_ != nullptr) [[unlikely]]
      return tls_->Write(segments, count);
    // For one segment send(2) is cheaper, because the kernel has no list to copy and check.
    if (count == 1)
      return send(socket_.get(), segments->iov_base, segments->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT);
    msghdr message = {};
    message.msg_iov = segments;
    message.msg_iovlen = count;
    return sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  // True: all of it was taken.
  bool SendAll(const void* bytes, size_t length_bytes) {
    iovec segment = {const_cast<void*>(bytes), length_bytes};
    return Send(&segment, 1) == static_cast<ssize_t>(length_bytes);
  }

  // TLS keeps a record that did not fit into the socket.
  bool has_unsent() const { return tls_ != nullptr && tls_->has_unsent(); }
  // True: nothing is kept any more. False: errno.
  bool Flush() { return tls_ == nullptr || tls_->Flush(); }

 private:
  UniqueFd socket_;
  std::unique_ptr<tls::Session> tls_;  // Ends before the socket is closed.
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_TCP_STREAM_H_
