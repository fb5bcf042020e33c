#include "hawser/tls/session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "hawser/tls/peer_check.h"
#include "hawser/tls/session_error.h"

namespace hawser::tls {
namespace {

constexpr size_t kRecordBytesMax = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB of plaintext

}  // namespace

// --- The handshake
// -----------------------------------------------------------------------------------------------------------

Session::Session(Parts parts)
    : parts_(std::move(parts)),
      socket_(parts_.fd, parts_.side == Side::kServer),
      kernel_(parts_.fd, parts_.side == Side::kClient) {
  SSL* const ssl = parts_.ssl.get();
  SSL_set_app_data(ssl, this);
  SSL_set_msg_callback(
      ssl, [](int is_written, int, int type, const void* bytes, size_t count, SSL* each, void*) {
        static_cast<Session*>(SSL_get_app_data(each))
            ->OnMessage(is_written == 1, type, absl::MakeSpan(static_cast<const uint8_t*>(bytes), count));
      });
  socket_.AttachTo(*ssl);
}

Session::~Session() = default;

Session::Progress Session::Handshake() {
  if (!error_.ok()) return Progress::kFailed;
  if (has_unsent() && !Flush()) {
    if (errno == EAGAIN) return Progress::kWantWrite;
    socket_.set_socket_errno(errno);
    return Fail(Explain());
  }
  if (done_) return Progress::kDone;
  SSL* const ssl = parts_.ssl.get();
  if (parts_.side == Side::kClient && !started_) {
    // Not earlier: a ticket serves one connection, and most attempts to connect end before TLS begins.
    if (Ticket ticket = parts_.context->tickets().Take(parts_.ticket_key); ticket.session != nullptr) {
      SSL_set_session(ssl, ticket.session.get());
      ticket_end_ = ticket.valid_until;
    }
  }
  started_ = true;
  socket_.set_drained(false);
  // Until the peer is known it costs no buffer.
  socket_.StartTurn(0, /*may_read_ahead=*/false);
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  if (result == 1) {
    absl::StatusOr<PeerIdentity> identity = CheckPeer(*ssl, parts_.server_name);
    if (!identity.ok()) {
      SSL_shutdown(ssl);  // Too late for an alert that says why.
      return Fail(identity.status());
    }
    peer_identity_ = std::make_shared<const PeerIdentity>(*std::move(identity));
    done_ = true;
    socket_.EndHandshake();
    Context::HandshakeCounts& counts = parts_.context->counts(parts_.side);
    (resumed() ? counts.resumed : counts.full).fetch_add(1, std::memory_order_relaxed);
    return has_unsent() ? Progress::kWantWrite : Progress::kDone;
  }
  const int error = SSL_get_error(ssl, result);
  if (error == SSL_ERROR_WANT_READ && !socket_.is_closed())
    return has_unsent() ? Progress::kWantWrite : Progress::kWantRead;
  return Fail(Explain());
}

Session::Progress Session::Fail(absl::Status why) {
  if (error_.ok()) error_ = std::move(why);
  if (!done_) parts_.context->counts(parts_.side).failed.fetch_add(1, std::memory_order_relaxed);
  return Progress::kFailed;
}

int Session::OnVerified(bool ok, x509_store_ctx_st& verification) {
  std::string why = WhyRefused(ok, verification, parts_.side, parts_.server_name);
  if (why.empty()) return 1;
  refused_ = std::move(why);
  return 0;
}

void Session::KeepTicket(const ssl_session_st& session) {
  if (parts_.side != Side::kClient) return;
  Ticket ticket = TicketOf(session, *parts_.ssl, ticket_end_);
  if (ticket.session == nullptr) return;
  parts_.context->tickets().Keep(parts_.ticket_key, parts_.generation, std::move(ticket));
}

absl::Status Session::Explain() {
  return SessionError({.is_done = done_,
                       .refused = refused_,
                       .hello_is_too_long = socket_.hello_is_too_long(),
                       .not_tls = done_ ? "" : socket_.NotTls(),
                       .could_not_answer = could_not_answer_,
                       .socket_errno = socket_.socket_errno()});
}

// --- After it
// -----------------------------------------------------------------------------------------------------------

ssize_t Session::FailIo() {
  if (error_.ok()) error_ = Explain();
  ERR_clear_error();
  const int error = socket_.socket_errno();
  errno = error != 0 && error != ENOBUFS ? error : EPROTO;
  return -1;
}

// The socket takes nothing any more, and OpenSSL not either: it would insist on the record that did not go
// out. What the peer has sent before can still be read, and that may be why: a server that refuses our
// certificate says so, and closes the connection.
ssize_t Session::FailWrite() {
  if (broken_ == 0) {
    if (socket_.socket_errno() == 0 || socket_.socket_errno() == ENOBUFS) return FailIo();
    broken_ = socket_.TakeSocketErrno();
    ERR_clear_error();
    socket_.StartTurn(0, MayReadAhead());
    char byte;
    size_t n = 0;
    const int result = SSL_peek_ex(parts_.ssl.get(), &byte, 1, &n);
    if (result != 1 && SSL_get_error(parts_.ssl.get(), result) == SSL_ERROR_SSL) return FailIo();
    ERR_clear_error();
  }
  errno = broken_;
  return -1;
}

ssize_t Session::Read(const iovec* segments, size_t count) {
  if (!error_.ok() || could_not_answer_) return FailIo();
  socket_.ResetCost();
  if (kernel_.receives()) return ReadFromKernel(segments, count);
  size_t asked = 0;
  for (size_t i = 0; i < count; ++i) asked += segments[i].iov_len;
  socket_.set_drained(false);
  socket_.StartTurn(asked, MayReadAhead());
  SSL* const ssl = parts_.ssl.get();
  ERR_clear_error();
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t filled = 0; filled < segments[i].iov_len;) {
      size_t n = 0;
      const int result = SSL_read_ex(ssl, static_cast<char*>(segments[i].iov_base) + filled,
                                     segments[i].iov_len - filled, &n);
      if (result == 1) {
        filled += n;
        total += n;
        continue;
      }
      socket_.FreeAhead();
      const int error = SSL_get_error(ssl, result);
      const bool waits = (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) &&
                         !socket_.is_closed() && !could_not_answer_;
      if (total > 0) {
        // The next call returns the error.
        if (!waits) socket_.set_drained(false);
        return static_cast<ssize_t>(total);
      }
      if (waits) {
        errno = EAGAIN;
        return -1;
      }
      if (error == SSL_ERROR_ZERO_RETURN || (socket_.is_closed() && socket_.socket_errno() == 0)) return 0;
      return FailIo();
    }
  }
  return static_cast<ssize_t>(total);
}

ssize_t Session::Write(const iovec* segments, size_t count) {
  if (!error_.ok() || could_not_answer_) return FailIo();
  if (kernel_.sends()) return WriteToKernel(segments, count);
  if (write_failed_) return FailWrite();
  if (has_unsent() && !Flush()) {
    if (errno == EAGAIN) return -1;
    socket_.set_socket_errno(errno);
    write_failed_ = true;
    return FailWrite();
  }
  SSL* const ssl = parts_.ssl.get();
  ERR_clear_error();
  size_t total = 0;
  size_t i = 0;
  size_t skipped = 0;  // Bytes of segments[i].
  char joined[kRecordBytesMax];
  const bool wears = aead() != Aead::kChaCha20Poly1305;
  while (i < count && !has_unsent()) {
    const char* bytes = static_cast<const char*>(segments[i].iov_base) + skipped;
    size_t length = segments[i].iov_len - skipped;
    if (length >= kRecordBytesMax || i + 1 == count) {
      length = std::min(length, kRecordBytesMax);
      skipped += length;
    } else {
      // Short segments share a record.
      length = 0;
      while (i < count && length < kRecordBytesMax) {
        const size_t part = std::min(segments[i].iov_len - skipped, kRecordBytesMax - length);
        std::memcpy(joined + length, static_cast<const char*>(segments[i].iov_base) + skipped, part);
        length += part;
        skipped += part;
        if (skipped == segments[i].iov_len) {
          ++i;
          skipped = 0;
        }
      }
      bytes = joined;
    }
    if (i < count && skipped == segments[i].iov_len) {
      ++i;
      skipped = 0;
    }
    if (wears && records_written_ >= key_records_max_ &&
        SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
      records_written_ = 0;
    }
    size_t written = 0;
    // A record goes out, or is kept, whole.
    if (length > 0 && (SSL_write_ex(ssl, bytes, length, &written) != 1 || written != length)) {
      write_failed_ = true;
      if (total > 0) return static_cast<ssize_t>(total);  // The next call returns the error.
      return FailWrite();
    }
    total += length;
  }
  return static_cast<ssize_t>(total);
}

void Session::End() {
  if (!done_ || ended_ || write_failed_ || !error_.ok()) return;
  ended_ = true;
  if (kernel_.sends()) return kernel_.SendCloseNotify();
  if (has_unsent() && !Flush()) return;
  ERR_clear_error();
  SSL_shutdown(parts_.ssl.get());
  ERR_clear_error();
}

absl::StatusOr<Secret> Session::ExportSecret(absl::string_view label) {
  Secret secret;
  ERR_clear_error();
  if (!done_ || SSL_export_keying_material(parts_.ssl.get(), secret.data(), secret.size(), label.data(),
                                           label.size(), nullptr, 0, 0) != 1) {
    ERR_clear_error();
    return absl::FailedPreconditionError("TLS: no secret can be exported: its handshake is not done");
  }
  return secret;
}

// --- In the kernel
// -----------------------------------------------------------------------------------------------------------

void Session::AllowKernel(KernelUse use) {
  kernel_use_ = use;
  keeps_secrets_ = use != KernelUse::kNever && KernelTls::MayExist();
}

// A line of OpenSSL's key log: "<label> <random of the client> <secret>". It gets each secret at the moment
// from which on that protects the records of its direction.
void Session::OnSecret(absl::string_view line) {
  const bool is_client = absl::StartsWith(line, "CLIENT_TRAFFIC_SECRET_0 ");
  if (!is_client && !absl::StartsWith(line, "SERVER_TRAFFIC_SECRET_0 ")) return;
  const bool is_ours = is_client == (parts_.side == Side::kClient);
  (is_ours ? records_written_ : records_read_) = 0;
  if (keeps_secrets_) (is_ours ? send_secret_ : receive_secret_).Set(line.substr(line.rfind(' ') + 1));
}

// OpenSSL calls this for the header of each record, and for each message of the handshake.
void Session::OnMessage(bool is_written, int type, absl::Span<const uint8_t> bytes) {
  if (type == SSL3_RT_HEADER) ++(is_written ? records_written_ : records_read_);
  if (type == SSL3_RT_HEADER && !is_written) socket_.ChargeRecord();
  if (type != SSL3_RT_HANDSHAKE) return;
  if (done_ && !is_written) socket_.ChargeMessage();
  if (bytes.empty() || bytes[0] != SSL3_MT_KEY_UPDATE) return;
  // The key that follows it is made of another secret.
  (is_written ? send_secret_ : receive_secret_).Wipe();
  // An answer must come before all other data (RFC 8446, 4.6.3). OpenSSL would send it with its next data, of
  // which it gets none.
  if (!is_written && kernel_.sends() && bytes.back() == SSL_KEY_UPDATE_REQUESTED) could_not_answer_ = true;
}

std::optional<Aead> Session::aead() const {
  const SSL_CIPHER* const cipher = SSL_get_current_cipher(parts_.ssl.get());
  return cipher == nullptr ? std::nullopt : AeadOf(SSL_CIPHER_get_protocol_id(cipher));
}

void Session::MoveToKernel() {
  if (!std::exchange(keeps_secrets_, false)) return;
  const std::optional<Aead> cipher = aead();
  if (done_ && error_.ok() && cipher.has_value() &&
      (kernel_use_ == KernelUse::kAlways ||
       (kernel_use_ == KernelUse::kWhereKeysLast && KeyLasts(*cipher)))) {
    SSL* const ssl = parts_.ssl.get();
    // OpenSSL holds no record, and has not read the header of one. The tickets of a server have come before
    // all else that it sends, so OpenSSL has read them.
    const bool read_all = !socket_.has_ahead() && SSL_has_pending(ssl) == 0 && !socket_.is_closed() &&
                          absl::string_view(SSL_rstate_string(ssl)) == "RH";
    TrafficKey receive_key, send_key;
    if (read_all && DeriveTrafficKey(receive_secret_, *cipher, &receive_key))
      kernel_.StartReceiving(receive_key, records_read_);
    if (!has_unsent() && DeriveTrafficKey(send_secret_, *cipher, &send_key) &&
        kernel_.StartSending(send_key, records_written_)) {
      socket_.RefuseWrites();
      if (key_records_max_ == kKeyRecordsMax) key_records_max_ = kKernelKeyRecordsMax;
    }
  }
  send_secret_.Wipe();
  receive_secret_.Wipe();
}

ssize_t Session::ReadFromKernel(const iovec* segments, size_t count) {
  if (socket_.is_closed()) return 0;
  // A call that returns data may have stopped at a record of another type behind it, so only EAGAIN says
  // that the kernel has nothing more.
  socket_.set_drained(false);
  const KernelTls::Received received = kernel_.Receive(segments, count);
  switch (received.kind) {
    case KernelTls::Kind::kData:
      return static_cast<ssize_t>(received.bytes);
    case KernelTls::Kind::kNothing:
    case KernelTls::Kind::kOthers:
      socket_.set_drained(received.kind == KernelTls::Kind::kNothing);
      errno = EAGAIN;
      return -1;
    case KernelTls::Kind::kEnd:
      socket_.set_closed();
      return 0;
    case KernelTls::Kind::kAlert:
      error_ = AlertError(received.code);
      break;
    case KernelTls::Kind::kKeyUpdate:
      error_ = KeyChangeError();
      break;
    case KernelTls::Kind::kMalformed:
      error_ = MalformedError("the kernel refuses it");
      if (kernel_.sends()) kernel_.SendFatalAlert(SSL_AD_BAD_RECORD_MAC);
      break;
    case KernelTls::Kind::kBroken:
      socket_.set_socket_errno(received.code);
      break;
  }
  return FailIo();
}

ssize_t Session::WriteToKernel(const iovec* segments, size_t count) {
  if (records_written_ >= key_records_max_ && aead() != Aead::kChaCha20Poly1305) {
    error_ = WornKeyError(records_written_);
    return FailIo();
  }
  const ssize_t n = kernel_.Send(segments, count);
  // What is wrong with the socket ends the connection when all that the peer has sent before was read.
  if (n > 0) records_written_ += (static_cast<size_t>(n) + kRecordBytesMax - 1) / kRecordBytesMax;
  return n;
}

bool Session::resumed() const { return SSL_session_reused(parts_.ssl.get()) == 1; }

std::string Session::cipher() const {
  const SSL_CIPHER* const cipher = SSL_get_current_cipher(parts_.ssl.get());
  return cipher == nullptr ? "" : SSL_CIPHER_get_name(cipher);
}

}  // namespace hawser::tls
