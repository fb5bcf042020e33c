#include "hawser/tls/kernel_tls.h"

#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

// For kernels that are newer than the headers.
#ifndef SOL_TLS
#define SOL_TLS 282
#endif
#ifndef TLS_RX_EXPECT_NO_PAD
#define TLS_RX_EXPECT_NO_PAD 4
#endif

namespace hawser::tls {
namespace {

// RFC 8446, 5.1, 6 and 4.
constexpr uint8_t kAlertRecord = 21, kHandshakeRecord = 22, kDataRecord = 23;
constexpr uint8_t kWarning = 1, kFatal = 2;
constexpr uint8_t kCloseNotify = 0, kUserCanceled = 90;
constexpr uint8_t kNewSessionTicket = 4, kKeyUpdateMessage = 24;
constexpr uint8_t kMessageHeaderBytes = 4;

// Records without data that one call reads.
constexpr int kOtherRecordsMax = 64;
// A NewSessionTicket: 64 KiB each for the ticket and the extensions, a nonce of 255, and 13 (RFC 8446,
// 4.6.1).
constexpr uint32_t kMessageBytesMax = 2 * 65535 + 255 + 13;

std::atomic<bool> is_absent = false;

// The type of the record that the bytes are from.
constexpr int kNoRecord = -1;
int TypeOf(msghdr& message) {
  const cmsghdr* const type = CMSG_FIRSTHDR(&message);
  if (type == nullptr || type->cmsg_level != SOL_TLS || type->cmsg_type != TLS_GET_RECORD_TYPE) {
    return kNoRecord;
  }
  return *CMSG_DATA(type);
}

// What an errno of recvmsg(2) means.
KernelTls::Received Failed(int error) {
  switch (error) {
    case EAGAIN:
      return {.kind = KernelTls::Kind::kNothing};
    case EBADMSG:   // The record's tag is wrong,
    case EMSGSIZE:  // it is too long,
    case EINVAL:    // or it begins as no record of TLS does.
      return {.kind = KernelTls::Kind::kMalformed};
    default:
      return {.kind = KernelTls::Kind::kBroken, .code = error};
  }
}

template <typename Info>
bool SetKey(int fd, int direction, uint16_t cipher, const TrafficKey& key, uint64_t sequence) {
  Info info = {};
  info.info.version = TLS_1_3_VERSION;
  info.info.cipher_type = cipher;
  static_assert(sizeof(info.rec_seq) == sizeof(sequence));
  std::memcpy(info.key, key.key.data(), sizeof(info.key));
  // The kernel's "salt" is what of the nonce each record of TLS 1.2 leaves out. ChaCha20-Poly1305 has none.
  constexpr size_t kSaltBytes = sizeof(key.iv) - sizeof(info.iv);
  std::memcpy(info.salt, key.iv.data(), kSaltBytes);
  std::memcpy(info.iv, key.iv.data() + kSaltBytes, sizeof(info.iv));
  for (size_t i = 0; i < sizeof(info.rec_seq); ++i)
    info.rec_seq[i] = static_cast<uint8_t>(sequence >> (56 - 8 * i));
  const bool set = setsockopt(fd, SOL_TLS, direction, &info, sizeof(info)) == 0;
  OPENSSL_cleanse(&info, sizeof(info));
  return set;
}

}  // namespace

bool KernelTls::MayExist() { return !is_absent.load(std::memory_order_relaxed); }

bool KernelTls::StartSending(const TrafficKey& key, uint64_t sequence) {
  sends_ = sends_ || Start(TLS_TX, key, sequence);
  return sends_;
}

bool KernelTls::StartReceiving(const TrafficKey& key, uint64_t sequence) {
  if (receives_ || !Start(TLS_RX, key, sequence)) return receives_;
  receives_ = true;
  // Otherwise the kernel would decrypt each record to memory of its own and copy it: a peer may hide the
  // length of a record behind padding (RFC 8446, 5.4). Hawser does not. A record with padding is still read,
  // by decrypting it twice. Linux before 6.0 does not know this option, and copies.
  const int on = 1;
  setsockopt(fd_, SOL_TLS, TLS_RX_EXPECT_NO_PAD, &on, sizeof(on));
  return true;
}

bool KernelTls::Start(int direction, const TrafficKey& key, uint64_t sequence) {
  // As long as no direction has a key, bytes pass as before.
  if (!attached_ && setsockopt(fd_, IPPROTO_TCP, TCP_ULP, "tls", sizeof("tls")) != 0) {
    // For a process that may load modules, each attempt starts modprobe(8).
    if (errno == ENOENT) is_absent.store(true, std::memory_order_relaxed);
    return false;
  }
  attached_ = true;
  switch (key.aead) {
    case Aead::kAes128Gcm:
      return SetKey<tls12_crypto_info_aes_gcm_128>(fd_, direction, TLS_CIPHER_AES_GCM_128, key, sequence);
    case Aead::kAes256Gcm:
      return SetKey<tls12_crypto_info_aes_gcm_256>(fd_, direction, TLS_CIPHER_AES_GCM_256, key, sequence);
    case Aead::kChaCha20Poly1305:
      return SetKey<tls12_crypto_info_chacha20_poly1305>(fd_, direction, TLS_CIPHER_CHACHA20_POLY1305, key,
                                                         sequence);
  }
  return false;
}

KernelTls::Received KernelTls::Receive(const iovec* segments, size_t count) {
  for (int records = 0; records < kOtherRecordsMax; ++records) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(uint8_t))];
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(segments);
    message.msg_iovlen = count;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(fd_, &message, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(errno);
    const int type = TypeOf(message);
    if (type == kNoRecord) return {.kind = n == 0 ? Kind::kEnd : Kind::kMalformed};
    // An empty record of data is allowed (RFC 8446, 5.1). One of another type may be behind it.
    if (type == kDataRecord && n == 0) continue;
    if (type == kDataRecord) return {.kind = Kind::kData, .bytes = static_cast<size_t>(n)};
    const Received received = TakeOther(type, segments, static_cast<size_t>(n));
    if (received.kind != Kind::kOthers) return received;
  }
  return {.kind = Kind::kOthers};
}

// A record that is no data, of which `bytes` are in the segments. kOthers: nothing follows from it.
KernelTls::Received KernelTls::TakeOther(int type, const iovec* segments, size_t bytes) {
  if ((type != kAlertRecord && type != kHandshakeRecord) || bytes == 0) return {.kind = Kind::kMalformed};
  for (; bytes > 0; ++segments) {
    const size_t here = std::min(bytes, segments->iov_len);
    for (size_t i = 0; i < here; ++i) {
      const uint8_t byte = static_cast<const uint8_t*>(segments->iov_base)[i];
      const Received received = type == kAlertRecord ? TakeAlert(byte) : Received{TakeHandshake(byte)};
      if (received.kind != Kind::kOthers) return received;
    }
    bytes -= here;
  }
  return {.kind = Kind::kOthers};
}

KernelTls::Received KernelTls::TakeAlert(uint8_t byte) {
  // The level says nothing that the description does not say (RFC 8446, 6).
  if (!std::exchange(has_alert_level_, !has_alert_level_)) return {.kind = Kind::kOthers};
  if (byte == kCloseNotify) return {.kind = Kind::kEnd};
  if (byte == kUserCanceled) return {.kind = Kind::kOthers};  // A close_notify follows.
  return {.kind = Kind::kAlert, .code = byte};
}

// kOthers: nothing follows from it.
KernelTls::Kind KernelTls::TakeHandshake(uint8_t byte) {
  if (message_missing_ > 0) {
    --message_missing_;
    return Kind::kOthers;
  }
  if (message_header_bytes_ == 0) {
    message_type_ = byte;
    // A late ticket is worth nothing to a connection whose client has had others.
    if (byte != kKeyUpdateMessage && !(byte == kNewSessionTicket && is_client_)) return Kind::kMalformed;
    message_header_bytes_ = 1;
    return Kind::kOthers;
  }
  message_length_ = message_length_ << 8 | byte;
  if (++message_header_bytes_ < kMessageHeaderBytes) return Kind::kOthers;
  message_header_bytes_ = 0;
  if (message_type_ == kKeyUpdateMessage) return Kind::kKeyUpdate;
  message_missing_ = message_length_;
  message_length_ = 0;
  return message_missing_ <= kMessageBytesMax ? Kind::kOthers : Kind::kMalformed;
}

ssize_t KernelTls::Send(const iovec* segments, size_t count) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(segments);
  message.msg_iovlen = count;
  return sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void KernelTls::SendCloseNotify() { SendAlert(kWarning, kCloseNotify); }

void KernelTls::SendFatalAlert(uint8_t description) {
  // A record that the kernel has refused is an error of the socket (sk_err), which sendmsg(2) would return.
  // This takes it.
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &bytes);
  SendAlert(kFatal, description);
}

void KernelTls::SendAlert(uint8_t level, uint8_t description) {
  uint8_t alert[2] = {level, description};
  iovec segment = {alert, sizeof(alert)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(kAlertRecord))] = {};
  msghdr message = {};
  message.msg_iov = &segment;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const type_header = CMSG_FIRSTHDR(&message);
  type_header->cmsg_level = SOL_TLS;
  type_header->cmsg_type = TLS_SET_RECORD_TYPE;
  type_header->cmsg_len = CMSG_LEN(sizeof(kAlertRecord));
  std::memcpy(CMSG_DATA(type_header), &kAlertRecord, sizeof(kAlertRecord));
  [[maybe_unused]] const ssize_t n = sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace hawser::tls
