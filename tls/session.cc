#include "hawser/tls/session.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "hawser/base/describe_errno.h"
#include "hawser/base/violation.h"
#include "hawser/tls/certificate.h"

namespace hawser::tls {
namespace {

constexpr size_t kRecordBytesMax = SSL3_RT_MAX_PLAIN_LENGTH;  // 16 KiB of plaintext

// Bytes that one call reads beyond what it was asked for. Only records without data of the peer's program,
// such as requests for new keys, or very short ones, come to so many: it is the others' turn then. A record
// takes as long as decrypting 1 KiB, however short it is, so it counts as so many bytes more. A request for
// new keys has 27 bytes, and takes as long as some KiB.
constexpr size_t kOverheadBytesMax = 64 * 1024;
constexpr size_t kRecordCost = 1024;
constexpr size_t kMessageCost = 4 * 1024;

// What is read ahead of a short record. From a peer that sends long ones nothing is: OpenSSL then has the
// kernel copy each record to where it decrypts it.
constexpr size_t kAheadBytes = 16 * 1024;
constexpr size_t kLongBytes = 4 * 1024;

// Bytes of records that wait for the socket. Write() stops at one; more are answers to requests for new keys.
constexpr size_t kUnsentBytesMax = 64 * 1024;

constexpr size_t kFirstBytes = 16;

// A ticket has the client's certificate in it, and is a part of the next ClientHello, which may have 16 KiB.
// With a larger one a handshake with certificates is as cheap.
constexpr size_t kTicketBytesMax = 8 * 1024;

// What an alert of the peer means (RFC 8446, 6.2).
absl::string_view MeaningOf(int alert) {
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
      return "it does not accept our certificate (bad_certificate)";
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
      return "our certificate may not be used for this (unsupported_certificate): see its keyUsage and "
             "extendedKeyUsage";
    case SSL_AD_CERTIFICATE_REVOKED:
      return "our certificate is revoked (certificate_revoked)";
    case SSL_AD_CERTIFICATE_EXPIRED:
      return "our certificate has expired, or is not valid yet by its clock (certificate_expired)";
    case SSL_AD_CERTIFICATE_UNKNOWN:
      return "it does not accept our certificate (certificate_unknown)";
    case SSL_AD_UNKNOWN_CA:
      return "none of its authorities has issued our certificate (unknown_ca)";
    case SSL_AD_ACCESS_DENIED:
      return "it denies us access (access_denied)";
    case SSL_AD_PROTOCOL_VERSION:
      return "it does not speak TLS 1.3 (protocol_version)";
    case SSL_AD_HANDSHAKE_FAILURE:
      return "it has no cipher or signature algorithm in common with us (handshake_failure)";
    case TLS13_AD_CERTIFICATE_REQUIRED:
      return "it wants a certificate, and we have sent none (certificate_required)";
    case SSL_AD_NO_APPLICATION_PROTOCOL:
      return "it is no Hawser server or client: it does not speak ALPN \"hawser/1\" "
             "(no_application_protocol)";
    case SSL_AD_DECRYPT_ERROR:
      return "it could not verify our signature (decrypt_error)";
    default:
      return "";
  }
}

// That the peer has ended the connection with an alert.
absl::Status RefusedBy(int alert) {
  const absl::string_view meaning = MeaningOf(alert);
  absl::Status status = absl::UnauthenticatedError(absl::StrCat(
      "TLS: the peer has refused: ",
      meaning.empty() ? absl::StrCat("alert ", alert, " (", SSL_alert_desc_string_long(alert), ")")
                      : std::string(meaning)));
  SetViolation(status, Violation::kTls);
  return status;
}

constexpr absl::string_view kMalformed = "what the peer has sent is malformed, or was changed on its way: ";

absl::Status CannotChangeKeys() {
  return absl::UnavailableError("TLS: the peer changes its keys, which the kernel of this side cannot");
}

bool IsTlsRecord(absl::string_view bytes) { return !bytes.empty() && bytes[0] >= 20 && bytes[0] <= 24; }

}  // namespace

// --- What OpenSSL reads from and writes to: the socket, without SIGPIPE, within the bounds of a call
// -----------------------------------------------------------------------------------------------------------

struct Session::Bio {
  static Session& Of(BIO* bio) { return *static_cast<Session*>(BIO_get_data(bio)); }

  static int Read(BIO* bio, char* out, size_t max, size_t* read) {
    BIO_clear_retry_flags(bio);
    Session& session = Of(bio);
    if (session.budget_bytes_ == 0) {
      BIO_set_retry_read(bio);
      return 0;
    }
    if (session.ahead_begin_ == session.ahead_end_) {
      // A record's header is 5 bytes, and its length is not known yet.
      const bool is_body = max > SSL3_RT_HEADER_LENGTH;
      if (is_body) session.bulk_ = max >= kLongBytes;
      // Until the peer is known it costs no buffer. What is read ahead could not be moved to the kernel.
      if (session.bulk_ || session.keeps_secrets_ || !session.done_) {
        *read = session.Receive(bio, out, max);
        return *read > 0;
      }
      if (session.ahead_ == nullptr) session.ahead_.reset(new char[kAheadBytes]);
      session.ahead_begin_ = 0;
      session.ahead_end_ = session.Receive(bio, session.ahead_.get(), kAheadBytes);
      if (session.ahead_end_ == 0) return 0;
    }
    *read = std::min(max, session.ahead_end_ - session.ahead_begin_);
    std::memcpy(out, session.ahead_.get() + session.ahead_begin_, *read);
    session.ahead_begin_ += *read;
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

// recv(2) into `out`; 0: nothing, and either the retry flag of `bio` is set or `closed_`.
size_t Session::Receive(bio_st* bio, char* out, size_t max) {
  if (socket_empty_) {
    drained_ = true;
    BIO_set_retry_read(bio);
    return 0;
  }
  ssize_t n;
  do {
    n = recv(parts_.fd, out, max, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    socket_empty_ = true;
    drained_ = true;
    BIO_set_retry_read(bio);
    return 0;
  }
  if (n <= 0) {
    errno_ = n < 0 ? errno : 0;
    closed_ = true;
    return 0;
  }
  const auto bytes = static_cast<size_t>(n);
  if (first_bytes_.size() < kFirstBytes)
    first_bytes_.append(out, std::min(bytes, kFirstBytes - first_bytes_.size()));
  if (!done_ && parts_.side == Side::kServer &&
      !hello_limit_.Allows(absl::MakeSpan(reinterpret_cast<const uint8_t*>(out), bytes))) {
    refused_ = "its ClientHello is too long: 16 KiB are accepted";
    closed_ = true;
    return 0;
  }
  socket_empty_ = bytes < max;
  Charge(bytes);
  return bytes;
}

// Sends, or keeps what does not fit into the socket.
bool Session::Put(const char* bytes, size_t count) {
  if (kernel_.sends()) {
    // A record of OpenSSL's, which the kernel would take for data. It has nothing more to send but an alert.
    return false;
  }
  size_t sent = 0;
  if (!has_unsent()) {
    ssize_t n;
    do {
      n = send(parts_.fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOBUFS && errno != ENOMEM) {
      errno_ = errno;
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
    errno_ = ENOBUFS;
    return false;
  }
  unsent_.insert(unsent_.end(), bytes + sent, bytes + count);
  return true;
}

bool Session::Flush() {
  while (has_unsent()) {
    const ssize_t n = send(parts_.fd, unsent_.data() + unsent_begin_, unsent_.size() - unsent_begin_,
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

// --- The handshake
// -----------------------------------------------------------------------------------------------------------

Session::Session(Parts parts) : parts_(std::move(parts)), kernel_(parts_.fd, parts_.side == Side::kClient) {
  SSL* const ssl = parts_.ssl.get();
  SSL_set_app_data(ssl, this);
  SSL_set_msg_callback(
      ssl, [](int is_written, int, int type, const void* bytes, size_t count, SSL* each, void*) {
        static_cast<Session*>(SSL_get_app_data(each))
            ->OnMessage(is_written == 1, type, absl::MakeSpan(static_cast<const uint8_t*>(bytes), count));
      });
  BIO* const bio = BIO_new(Bio::Method());
  if (bio == nullptr) return;  // OpenSSL then reports that it has none.
  BIO_set_data(bio, this);
  SSL_set_bio(ssl, bio, bio);
}

Session::~Session() = default;

Session::Progress Session::Handshake() {
  if (!error_.ok()) return Progress::kFailed;
  if (has_unsent() && !Flush()) {
    if (errno == EAGAIN) return Progress::kWantWrite;
    errno_ = errno;
    return Fail(Explain());
  }
  if (done_) return Progress::kDone;
  SSL* const ssl = parts_.ssl.get();
  if (parts_.side == Side::kClient && !started_) {
    // Not earlier: a ticket serves one connection, and most attempts to connect end before TLS begins.
    if (Context::Ticket ticket = parts_.context->TakeTicket(parts_.ticket_key); ticket.session != nullptr) {
      SSL_set_session(ssl, ticket.session.get());
      ticket_end_ = ticket.valid_until;
    }
  }
  started_ = true;
  socket_empty_ = false;
  drained_ = false;
  budget_bytes_ = kOverheadBytesMax;
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl);
  if (result == 1) {
    if (absl::Status status = CheckPeer(); !status.ok()) {
      SSL_shutdown(ssl);  // Too late for an alert that says why.
      return Fail(std::move(status));
    }
    done_ = true;
    bulk_ = false;
    Context::HandshakeCounts& counts = parts_.context->counts(parts_.side);
    (resumed() ? counts.resumed : counts.full).fetch_add(1, std::memory_order_relaxed);
    return has_unsent() ? Progress::kWantWrite : Progress::kDone;
  }
  const int error = SSL_get_error(ssl, result);
  if (error == SSL_ERROR_WANT_READ && !closed_)
    return has_unsent() ? Progress::kWantWrite : Progress::kWantRead;
  return Fail(Explain());
}

Session::Progress Session::Fail(absl::Status why) {
  if (error_.ok()) error_ = std::move(why);
  if (!done_) parts_.context->counts(parts_.side).failed.fetch_add(1, std::memory_order_relaxed);
  return Progress::kFailed;
}

// Called for each certificate of the peer's chain, from the authority's down, and for each thing that is
// wrong.
int Session::OnVerified(bool ok, x509_store_ctx_st& verification) {
  X509* const certificate = X509_STORE_CTX_get_current_cert(&verification);
  const bool is_own = X509_STORE_CTX_get_error_depth(&verification) == 0;
  std::string too_many_names;
  if (ok && is_own && certificate != nullptr) {
    const PeerIdentity identity = IdentityOf(*certificate);
    too_many_names = TooManyNames(identity);
    if (!too_many_names.empty()) {
      X509_STORE_CTX_set_error(&verification, X509_V_ERR_UNSUPPORTED_NAME_SYNTAX);
      ok = false;
    } else if (parts_.side == Side::kClient && parts_.name_is_uri && !identity.HasUri(parts_.name)) {
      X509_STORE_CTX_set_error(&verification, X509_V_ERR_HOSTNAME_MISMATCH);
      ok = false;
    }
  }
  if (ok) return 1;
  const std::string who =
      certificate == nullptr ? "" : absl::StrCat("its ", DescribeCertificate(*certificate), ": ");
  if (!too_many_names.empty()) {
    refused_ = absl::StrCat(who, too_many_names);
    return 0;
  }
  switch (const int error = X509_STORE_CTX_get_error(&verification)) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      refused_ =
          absl::StrCat(who, "it has expired at ", absl::FormatTime(EndOf(*certificate), absl::UTCTimeZone()),
                       ", by our clock it is ", absl::FormatTime(absl::Now(), absl::UTCTimeZone()));
      break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      refused_ = absl::StrCat(who, "it is not valid before ",
                              absl::FormatTime(BeginOf(*certificate), absl::UTCTimeZone()),
                              ", by our clock it is ", absl::FormatTime(absl::Now(), absl::UTCTimeZone()));
      break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
      refused_ = absl::StrCat(who, "it is self-signed, and none of TlsCredentials::authorities");
      break;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      refused_ = absl::StrCat(
          who, "none of TlsCredentials::authorities has issued it, and it came without a chain of ",
          "intermediate authorities that leads to one");
      break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      refused_ = absl::StrCat(
          who, "it is not for \"", parts_.name,
          "\": connect by a name that it has, or say in TlsCredentials::server_name which one to expect");
      break;
    case X509_V_ERR_INVALID_PURPOSE:
      refused_ = absl::StrCat(who, "its extendedKeyUsage does not allow it for a ",
                              parts_.side == Side::kClient ? "server" : "client");
      break;
    default:
      refused_ = absl::StrCat(who, X509_verify_cert_error_string(error));
      break;
  }
  return 0;
}

absl::Status Session::CheckPeer() {
  const auto refuse = [](absl::string_view why) {
    absl::Status status = absl::UnauthenticatedError(absl::StrCat("TLS: ", why));
    SetViolation(status, Violation::kTls);
    return status;
  };
  SSL* const ssl = parts_.ssl.get();
  const unsigned char* protocol = nullptr;
  unsigned protocol_bytes = 0;
  SSL_get0_alpn_selected(ssl, &protocol, &protocol_bytes);
  if (protocol == nullptr)
    return refuse("the peer did not ask for ALPN \"hawser/1\": it is no Hawser server or client");
  const X509* const certificate = SSL_get0_peer_certificate(ssl);
  if (certificate == nullptr || SSL_get_verify_result(ssl) != X509_V_OK) {
    return refuse("the peer has sent no certificate");
  }
  PeerIdentity identity = IdentityOf(*certificate);
  // Neither is looked at again when a session is resumed.
  if (EndOf(*certificate) <= absl::Now() ||
      (parts_.side == Side::kClient && parts_.name_is_uri && !identity.HasUri(parts_.name))) {
    return refuse(absl::StrCat("its ", DescribeCertificate(*certificate),
                               ": it has expired, or is not for \"", parts_.name, "\""));
  }
  peer_identity_ = std::make_shared<const PeerIdentity>(std::move(identity));
  return absl::OkStatus();
}

// A copy, because OpenSSL makes the session of a connection that ends without close_notify useless.
void Session::KeepTicket(const ssl_session_st& session) {
  if (parts_.side != Side::kClient) return;
  const unsigned char* ticket;
  size_t ticket_bytes = 0;
  SSL_SESSION_get0_ticket(&session, &ticket, &ticket_bytes);
  if (ticket_bytes > kTicketBytesMax) return;
  const STACK_OF(X509)* const chain = SSL_get0_verified_chain(parts_.ssl.get());
  SslSessionPtr copy(SSL_SESSION_dup(&session));
  if (copy == nullptr) return;
  parts_.context->KeepTicket(
      parts_.ticket_key, parts_.generation,
      {.session = std::move(copy), .valid_until = chain == nullptr ? ticket_end_ : EndOf(*chain)});
}

absl::Status Session::Explain() {
  // The first error is the cause; the others are what it led to.
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const auto refuse = [&](absl::string_view why) {
    const std::string text = absl::StrCat("TLS: ", why);
    absl::Status status = done_ ? absl::DataLossError(text) : absl::UnauthenticatedError(text);
    SetViolation(status, Violation::kTls);
    return status;
  };
  if (!refused_.empty()) return refuse(refused_);
  const bool is_ssl = code != 0 && ERR_GET_LIB(code) == ERR_LIB_SSL;
  const int reason = is_ssl ? ERR_GET_REASON(code) : 0;
  if (reason > SSL_AD_REASON_OFFSET) {
    return RefusedBy(reason - SSL_AD_REASON_OFFSET);
  }
  if (!done_ && !first_bytes_.empty() && !IsTlsRecord(first_bytes_)) {
    char more[kFirstBytes];
    const ssize_t n = recv(parts_.fd, more, kFirstBytes - first_bytes_.size(), MSG_PEEK | MSG_DONTWAIT);
    first_bytes_.append(more, static_cast<size_t>(std::max<ssize_t>(n, 0)));
    return refuse(
        absl::StartsWith(first_bytes_, "\x89HAWSER")
            ? "the peer speaks Hawser without TLS: it has no credentials"
            : absl::StrCat("the peer does not speak TLS; it sent \"", absl::CHexEscape(first_bytes_), "\""));
  }
  switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return refuse("the peer has sent no certificate");
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_VERSION_TOO_LOW:
      return refuse("the peer does not speak TLS 1.3");
    case SSL_R_CALLBACK_FAILED:  // See RequireAlpn().
    case SSL_R_NO_APPLICATION_PROTOCOL:
      return refuse("the peer does not speak ALPN \"hawser/1\": it is no Hawser server or client");
    case SSL_R_EXCESSIVE_MESSAGE_SIZE:
      return refuse("what the peer has sent is too long; of certificates, 32 KiB are accepted");
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_NO_SHARED_GROUPS:
    case SSL_R_NO_SUITABLE_KEY_SHARE:
    case SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS:
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
      return refuse("the peer has no cipher, group or signature algorithm in common with us");
    default:
      break;
  }
  if (code != 0) {
    const char* const text = ERR_reason_error_string(code);
    return refuse(absl::StrCat(kMalformed, text == nullptr ? "no reason given" : text));
  }
  if (could_not_answer_) return CannotChangeKeys();
  if (errno_ == ENOBUFS) return refuse("the peer asks for new keys, and does not read the answers");
  return absl::UnavailableError(
      absl::StrCat("TLS: the peer ", done_ ? "" : "ended the handshake: it ",
                   errno_ == 0 ? "closed the connection" : absl::StrCat("is lost: ", DescribeErrno(errno_))));
}

// --- After it
// -----------------------------------------------------------------------------------------------------------

ssize_t Session::FailIo() {
  if (error_.ok()) error_ = Explain();
  ERR_clear_error();
  errno = errno_ != 0 && errno_ != ENOBUFS ? errno_ : EPROTO;
  return -1;
}

// The socket takes nothing any more, and OpenSSL not either: it would insist on the record that did not go
// out. What the peer has sent before can still be read, and that may be why: a server that refuses our
// certificate says so, and closes the connection.
ssize_t Session::FailWrite() {
  if (broken_ == 0) {
    if (errno_ == 0 || errno_ == ENOBUFS) return FailIo();
    broken_ = std::exchange(errno_, 0);
    ERR_clear_error();
    socket_empty_ = false;
    budget_bytes_ = kOverheadBytesMax;
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
  cost_bytes_ = 0;
  if (kernel_.receives()) return ReadFromKernel(segments, count);
  size_t asked = 0;
  for (size_t i = 0; i < count; ++i) asked += segments[i].iov_len;
  socket_empty_ = false;
  drained_ = false;
  // With what surrounds each record.
  budget_bytes_ = asked + asked / 8 + kOverheadBytesMax;
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
      if (ahead_begin_ == ahead_end_) ahead_.reset();
      const int error = SSL_get_error(ssl, result);
      const bool waits =
          (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) && !closed_ && !could_not_answer_;
      if (total > 0) {
        // What is wrong is told by the next call.
        if (!waits) drained_ = false;
        return static_cast<ssize_t>(total);
      }
      if (waits) {
        errno = EAGAIN;
        return -1;
      }
      if (error == SSL_ERROR_ZERO_RETURN || (closed_ && errno_ == 0)) return 0;
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
    errno_ = errno;
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
      if (total > 0) return static_cast<ssize_t>(total);  // What is wrong is told by the next call.
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
  if (type == SSL3_RT_HEADER && !is_written) Charge(kRecordCost);
  if (type != SSL3_RT_HANDSHAKE) return;
  if (done_ && !is_written) Charge(kMessageCost);
  if (bytes.empty() || bytes[0] != SSL3_MT_KEY_UPDATE) return;
  // The key that follows it is made of another secret.
  (is_written ? send_secret_ : receive_secret_).Wipe();
  // An answer must come before all other data (RFC 8446, 4.6.3). OpenSSL would send it with its next data, of
  // which it gets none.
  if (!is_written && kernel_.sends() && bytes.back() == SSL_KEY_UPDATE_REQUESTED) could_not_answer_ = true;
}

void Session::Charge(size_t bytes) {
  cost_bytes_ += bytes;
  budget_bytes_ -= std::min(bytes, budget_bytes_);
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
    const bool read_all = ahead_begin_ == ahead_end_ && SSL_has_pending(ssl) == 0 && !closed_ &&
                          absl::string_view(SSL_rstate_string(ssl)) == "RH";
    TrafficKey receive_key, send_key;
    if (read_all && DeriveTrafficKey(receive_secret_, *cipher, &receive_key))
      kernel_.StartReceiving(receive_key, records_read_);
    if (!has_unsent() && DeriveTrafficKey(send_secret_, *cipher, &send_key) &&
        kernel_.StartSending(send_key, records_written_) && key_records_max_ == kKeyRecordsMax) {
      key_records_max_ = kKernelKeyRecordsMax;
    }
  }
  send_secret_.Wipe();
  receive_secret_.Wipe();
}

ssize_t Session::ReadFromKernel(const iovec* segments, size_t count) {
  if (closed_) return 0;
  // A call that returns data may have stopped at a record of another type behind it, so only EAGAIN tells
  // that the kernel has nothing more.
  drained_ = false;
  const KernelTls::Received received = kernel_.Receive(segments, count);
  switch (received.kind) {
    case KernelTls::Kind::kData:
      return static_cast<ssize_t>(received.bytes);
    case KernelTls::Kind::kNothing:
    case KernelTls::Kind::kOthers:
      drained_ = received.kind == KernelTls::Kind::kNothing;
      errno = EAGAIN;
      return -1;
    case KernelTls::Kind::kEnd:
      closed_ = true;
      return 0;
    case KernelTls::Kind::kAlert:
      error_ = RefusedBy(received.code);
      break;
    case KernelTls::Kind::kKeyUpdate:
      error_ = CannotChangeKeys();
      break;
    case KernelTls::Kind::kMalformed:
      error_ = ViolationError(Violation::kTls, absl::StrCat("TLS: ", kMalformed, "the kernel refuses it"));
      if (kernel_.sends()) kernel_.SendFatalAlert(SSL_AD_BAD_RECORD_MAC);
      break;
    case KernelTls::Kind::kBroken:
      errno_ = received.code;
      break;
  }
  return FailIo();
}

ssize_t Session::WriteToKernel(const iovec* segments, size_t count) {
  if (records_written_ >= key_records_max_ && aead() != Aead::kChaCha20Poly1305) {
    error_ = absl::UnavailableError(
        absl::StrCat("TLS: the key of this side has reached its limit, after ", records_written_,
                     " records, and its kernel cannot change it: see KernelUse::kAlways"));
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
