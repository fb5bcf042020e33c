#include "hawser/bench/bare_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "hawser/bench/raw_socket.h"

namespace hawser::bench {
namespace {

[[noreturn]] void Die(const char* what) {
  fprintf(stderr, "bench: bare TLS: %s\n", what);
  ERR_print_errors_fp(stderr);
  exit(1);
}

struct Deleter {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_SESSION* session) const { SSL_SESSION_free(session); }
};
using Context = std::unique_ptr<SSL_CTX, Deleter>;
using Ticket = std::unique_ptr<SSL_SESSION, Deleter>;

// As the tls folder sets up its own, but for what is without effect on a stream.
Context MakeContext(const TlsCredentials& credentials) {
  Context context(SSL_CTX_new(TLS_method()));
  SSL_CTX* const ssl = context.get();
  if (ssl == nullptr || SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(ssl, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_use_certificate_chain_file(ssl, credentials.certificate.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(ssl, credentials.key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_load_verify_locations(ssl, credentials.authorities.c_str(), nullptr) != 1) {
    Die("credentials");
  }
  SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  const unsigned char id[] = "bench";
  SSL_CTX_set_session_id_context(ssl, id, sizeof(id));
  return context;
}

// One connection, without the socket.
class Connection {
 public:
  Connection(SSL_CTX& context, int fd) : ssl_(SSL_new(&context)) {
    if (ssl_ == nullptr || SSL_set_fd(ssl_.get(), fd) != 1) Die("SSL_new()");
  }

  // Without it OpenSSL would not resume the session.
  ~Connection() {
    if (SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  SSL* ssl() const { return ssl_.get(); }

  bool Send(const void* data, size_t size) {
    size_t written = 0;
    return size == 0 || SSL_write_ex(ssl_.get(), data, size, &written) == 1;
  }
  // Exactly `size` bytes.
  bool Receive(void* data, size_t size) {
    for (auto* at = static_cast<uint8_t*>(data); size > 0;) {
      size_t n = 0;
      if (SSL_read_ex(ssl_.get(), at, size, &n) != 1) return false;
      at += n;
      size -= n;
    }
    return true;
  }

 private:
  const std::unique_ptr<SSL, Deleter> ssl_;
};

struct Wish {
  uint64_t put_bytes;  // They follow.
  uint64_t get_bytes;
};

void Serve(SSL_CTX& context, RawSocket socket) {
  Connection connection(context, socket.fd());
  if (SSL_accept(connection.ssl()) != 1) Die("SSL_accept()");
  std::vector<uint8_t> put, get;
  Wish wish;
  while (connection.Receive(&wish, sizeof(wish))) {
    if (put.size() < wish.put_bytes) put.resize(wish.put_bytes);
    if (get.size() < wish.get_bytes) get.assign(wish.get_bytes, 'x');
    if (!connection.Receive(put.data(), wish.put_bytes) || !connection.Send(get.data(), wish.get_bytes))
      return;
  }
  ERR_clear_error();
}

}  // namespace

void ServeBareTls(const TlsCredentials& credentials, const std::string& host) {
  signal(SIGPIPE, SIG_IGN);
  const Context context = MakeContext(credentials);
  ListenRaw(host, [&](RawSocket socket) { Serve(*context, std::move(socket)); });
}

struct BareTlsClients::State {
  State(const TlsCredentials& credentials, std::string server)
      : context(MakeContext(credentials)), address(std::move(server)) {
    SSL_CTX_set_app_data(context.get(), this);
    SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
    SSL_CTX_sess_set_new_cb(context.get(), [](SSL* ssl, SSL_SESSION* session) {
      static_cast<State*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)))->ticket.reset(session);
      return 1;
    });
  }

  const Context context;
  const std::string address;
  Ticket ticket;  // The last one that came.
};

namespace {

// A client's.
class Client {
 public:
  Client(SSL_CTX& context, const std::string& address, SSL_SESSION* ticket)
      : socket_(ConnectRaw(address)), connection_(context, socket_.fd()) {
    // The name is checked, as Hawser does.
    X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(connection_.ssl()), "127.0.0.1");
    if (ticket != nullptr && SSL_set_session(connection_.ssl(), ticket) != 1) Die("SSL_set_session()");
    if (SSL_connect(connection_.ssl()) != 1) Die("SSL_connect()");
    if (ticket != nullptr && SSL_session_reused(connection_.ssl()) != 1) Die("it was not resumed");
  }

  Connection& operator*() { return connection_; }
  Connection* operator->() { return &connection_; }

 private:
  RawSocket socket_;
  Connection connection_;
};

}  // namespace

BareTlsClients::BareTlsClients(const TlsCredentials& credentials, std::string address)
    : state_(std::make_unique<State>(credentials, std::move(address))) {
  signal(SIGPIPE, SIG_IGN);  // A server that is gone is an error, with a message.
}

BareTlsClients::~BareTlsClients() = default;

double BareTlsClients::StreamInto(std::vector<uint8_t>& memory, int count) {
  Client client(*state_->context, state_->address, nullptr);
  const Wish wish = {memory.size(), 0};
  const Wish last = {memory.size(), 1};
  const absl::Time start = absl::Now();
  for (int i = 0; i < count; ++i) {
    // Only the last is answered: the stream never stops for an answer.
    if (!client->Send(i + 1 < count ? &wish : &last, sizeof(wish)) ||
        !client->Send(memory.data(), memory.size())) {
      Die("stream");
    }
  }
  uint8_t answer;
  if (!client->Receive(&answer, 1)) Die("stream");
  return static_cast<double>(memory.size()) * count / absl::ToDoubleSeconds(absl::Now() - start);
}

double BareTlsClients::StreamFrom(std::vector<uint8_t>& memory, int count) {
  Client client(*state_->context, state_->address, nullptr);
  const std::vector<Wish> wishes(static_cast<size_t>(count), Wish{0, memory.size()});
  const absl::Time start = absl::Now();
  if (!client->Send(wishes.data(), wishes.size() * sizeof(Wish))) Die("stream");
  for (int i = 0; i < count; ++i) {
    if (!client->Receive(memory.data(), memory.size())) Die("stream");
  }
  return static_cast<double>(memory.size()) * count / absl::ToDoubleSeconds(absl::Now() - start);
}

std::vector<double> BareTlsClients::ConnectUs(int count, bool resume) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> each_us;
  for (int i = resume ? -1 : 0; i < count; ++i) {
    const Ticket ticket = std::move(state_->ticket);
    const auto start = Clock::now();
    Client client(*state_->context, state_->address, resume && i >= 0 ? ticket.get() : nullptr);
    const Wish wish = {0, 1};
    uint8_t answer;
    if (!client->Send(&wish, sizeof(wish)) || !client->Receive(&answer, 1)) Die("a new connection");
    if (i >= 0) {
      each_us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
    }
  }
  return each_us;
}

std::string BareTlsClients::Cipher() {
  Client client(*state_->context, state_->address, nullptr);
  return SSL_get_cipher_name(client->ssl());
}

}  // namespace hawser::bench
