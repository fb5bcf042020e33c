#include "hawser/tls/context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/fork.h"
#include "hawser/base/steady_now.h"
#include "hawser/tls/certificate.h"
#include "hawser/tls/handshake_terms.h"
#include "hawser/tls/server_name.h"
#include "hawser/tls/session.h"

namespace hawser::tls {

absl::StatusOr<std::shared_ptr<Context>> Context::Create(
    const TlsCredentials& credentials, std::function<void(const absl::Status& why)> on_stale) {
  // Pollers run until the process ends, so they may use OpenSSL during exit(), which must not clean it up.
  // Without effect if the program has used OpenSSL before.
  OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
  using Key = std::tuple<std::string, std::string, std::string, std::string>;
  struct Contexts {
    Mutex mutex;
    std::map<Key, std::weak_ptr<Context>> all;
  };
  // A child after fork() has its own: tickets are used once, and a poller of the parent may have held a lock.
  static constinit PerProcess<Contexts> contexts;
  const Key key(credentials.certificate, credentials.key, credentials.authorities, credentials.server_name);
  Contexts& known = contexts.Get();
  {
    MutexLock lock(known.mutex);
    if (const auto found = known.all.find(key); found != known.all.end()) {
      if (std::shared_ptr<Context> context = found->second.lock()) return context;
    }
  }
  // Not under the lock: a file may be on a disk that does not answer.
  auto context = std::make_shared<Context>(credentials, std::move(on_stale));
  if (absl::Status status = context->Start(); !status.ok()) return status;
  MutexLock lock(known.mutex);
  for (auto each = known.all.begin(); each != known.all.end();) {
    each = each->second.expired() ? known.all.erase(each) : std::next(each);
  }
  std::weak_ptr<Context>& slot = known.all[key];
  if (std::shared_ptr<Context> other = slot.lock()) return other;  // Another thread was faster.
  slot = context;
  return context;
}

Context::Context(const TlsCredentials& credentials, std::function<void(const absl::Status& why)> on_stale)
    : server_name_(credentials.server_name), files_(credentials), on_stale_(std::move(on_stale)) {}

absl::Status Context::Start() {
  const CredentialFiles::Stamps stamps = files_.Look();
  absl::StatusOr<SslContextPtr> loaded = Load();
  if (!loaded.ok()) return loaded.status();
  MutexLock lock(mutex_);
  stamps_ = stamps;
  current_ = *std::move(loaded);
  next_look_ = SteadyNow() + kLookInterval;
  return absl::OkStatus();
}

absl::Status Context::UseForServer() {
  bool served_before;
  {
    MutexLock lock(mutex_);
    served_before = std::exchange(serves_, true);  // Refresh() does not use files that cannot serve.
    next_look_ = SteadyNow() + kLookInterval;      // Other threads do not look meanwhile.
  }
  // A client may have read the files long ago.
  Refresh();
  MutexLock lock(mutex_);
  absl::Status status = files_.CheckServes(*current_);
  if (!status.ok()) serves_ = served_before;
  return status;
}

absl::StatusOr<SslContextPtr> Context::Load() const {
  if (absl::Status status = files_.CheckReadable(); !status.ok()) return status;
  absl::StatusOr<SslContextPtr> context = NewSslContext();
  if (!context.ok()) return context;
  SSL_CTX* const ssl = context->get();
  AllowResumption(*ssl);
  if (absl::Status status = files_.ReadInto(*ssl); !status.ok()) return status;
  SSL_CTX_set_verify(
      ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, [](int ok, X509_STORE_CTX* verification) {
        const auto* const each =
            static_cast<SSL*>(X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
        return static_cast<Session*>(SSL_get_app_data(each))->OnVerified(ok == 1, *verification);
      });

  // The session keeps two of the secrets, for the kernel, and nothing else sees them.
  SSL_CTX_set_keylog_callback(ssl, [](const SSL* each, const char* line) {
    static_cast<Session*>(SSL_get_app_data(each))->OnSecret(line);
  });

  SSL_CTX_sess_set_new_cb(ssl, [](SSL* each, SSL_SESSION* session) {
    static_cast<Session*>(SSL_get_app_data(each))->KeepTicket(*session);
    return 0;  // It stays OpenSSL's.
  });
  return context;
}

Context::Handshakes Context::handshakes(Side side) const {
  const HandshakeCounts& counts = counts_[side == Side::kClient ? 0 : 1];
  return {counts.full.load(std::memory_order_relaxed), counts.resumed.load(std::memory_order_relaxed),
          counts.failed.load(std::memory_order_relaxed)};
}

SslContextPtr Context::Current(uint64_t* generation) {
  bool is_due = false;
  {
    MutexLock lock(mutex_);
    const absl::Duration now = SteadyNow();
    is_due = now >= next_look_;
    // Other threads do not look meanwhile, nor wait for this one.
    if (is_due) next_look_ = now + kLookInterval;
  }
  if (is_due) Refresh();
  MutexLock lock(mutex_);
  SSL_CTX_up_ref(current_.get());
  *generation = generation_;
  return SslContextPtr(current_.get());
}

void Context::Refresh() {
  // Before the files are read: what changes meanwhile is found at the next look.
  const CredentialFiles::Stamps stamps = files_.Look();
  bool serves;
  {
    MutexLock lock(mutex_);
    if (stamps == stamps_) return;
    stamps_ = stamps;
    serves = serves_;
  }
  absl::StatusOr<SslContextPtr> loaded = Load();
  bool retries = false;
  if (loaded.ok() && serves) {
    if (absl::Status status = files_.CheckServes(**loaded); !status.ok()) {
      loaded = std::move(status);
      retries = true;
    }
  }
  {
    MutexLock lock(mutex_);
    // The certificate may become valid while the files stay the same, so the next look reads them again.
    if (retries) stamps_.certificate.bytes = -1;
    if (loaded.ok()) {
      current_ = *std::move(loaded);
      tickets_.StartGeneration(++generation_);
      stale_.clear();
      return;
    }
    const absl::string_view why = WithoutOurClock(loaded.status().message());
    if (stale_ == why) return;
    stale_ = std::string(why);
  }
  if (on_stale_ != nullptr) on_stale_(loaded.status());
}

absl::StatusOr<std::unique_ptr<Session>> Context::NewSession(Side side, int fd, absl::string_view host,
                                                             absl::string_view peer) {
  Session::Parts parts = {.context = shared_from_this(), .side = side, .fd = fd};
  const SslContextPtr context = Current(&parts.generation);
  ERR_clear_error();
  parts.ssl.reset(SSL_new(context.get()));
  if (parts.ssl == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("TLS: SSL_new(): ", TakeError().text));
  SSL* const ssl = parts.ssl.get();
  if (side == Side::kServer) {
    SSL_set_accept_state(ssl);
    return std::make_unique<Session>(std::move(parts));
  }

  SSL_set_connect_state(ssl);
  absl::StatusOr<ServerName> name =
      ExpectServerName(*ssl, server_name_.empty() ? std::string(host) : server_name_);
  if (!name.ok()) return name.status();
  parts.ticket_key = absl::StrCat(peer, "|", name->text);
  parts.server_name = *std::move(name);
  return std::make_unique<Session>(std::move(parts));
}

}  // namespace hawser::tls
