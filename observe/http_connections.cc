#include "hawser/observe/http_connections.h"

#include <algorithm>

namespace hawser::observe {
namespace {

// A Hawser client that has mixed up the two ports quotes the first bytes of the answer, "HTTP/1.1 400 Bad".
constexpr kj::StringPtr kNotHttp =
    "HTTP/1.1 400 Bad Request: this port is for HTTP, not for calls\r\n"
    "Connection: close\r\n"
    "Content-Type: text/plain\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Content-Security-Policy: default-src 'none'\r\n"
    "Content-Length: 0\r\n"
    "\r\n"_kj;

// How long a client may take to end a connection that the server has ended.
constexpr kj::Duration kEndTime = 1 * kj::SECONDS;

// No request begins like this: the greeting of a Hawser client does, and TLS.
bool CannotBeHttp(kj::byte first) {
  return first >= 0x80 || (first < 0x20 && first != '\r' && first != '\n');
}

// A stream whose end comes after HttpConnections::kRequestBytesMax at the latest, and at once if it cannot be
// HTTP.
class Limited final : public kj::AsyncIoStream {
 public:
  explicit Limited(kj::Own<kj::AsyncIoStream> inner) : inner_(kj::mv(inner)) {}

  kj::Promise<size_t> tryRead(void* buffer, size_t min_bytes, size_t max_bytes) override {
    if (bytes_left_ == 0) return size_t{0};
    return inner_->tryRead(buffer, std::min(min_bytes, bytes_left_), std::min(max_bytes, bytes_left_))
        .then([this, buffer](size_t bytes) -> kj::Promise<size_t> {
          const bool begins = bytes > 0 && bytes_left_ == HttpConnections::kRequestBytesMax;
          bytes_left_ -= bytes;
          if (!begins || !CannotBeHttp(*static_cast<const kj::byte*>(buffer))) return bytes;
          bytes_left_ = 0;
          return inner_->write(kNotHttp.begin(), kNotHttp.size()).then([] { return size_t{0}; });
        });
  }
  kj::Promise<void> write(const void* buffer, size_t size) override { return inner_->write(buffer, size); }
  kj::Promise<void> write(kj::ArrayPtr<const kj::ArrayPtr<const kj::byte>> pieces) override {
    return inner_->write(pieces);
  }
  kj::Promise<void> whenWriteDisconnected() override { return inner_->whenWriteDisconnected(); }
  void shutdownWrite() override { inner_->shutdownWrite(); }
  void abortRead() override { inner_->abortRead(); }

  // Tells the client that no more answers follow, and drops what it sends until it has ended the connection,
  // too. If the socket were closed with unread bytes, the kernel would reset the connection, and the client
  // might lose the last answers.
  kj::Promise<void> End() {
    inner_->shutdownWrite();
    return Drop();
  }

 private:
  kj::Promise<void> Drop() {
    if (bytes_left_ == 0) return kj::READY_NOW;
    return inner_->tryRead(dropped_, 1, std::min(sizeof(dropped_), bytes_left_))
        .then([this](size_t bytes) -> kj::Promise<void> {
          bytes_left_ -= bytes;
          if (bytes == 0) return kj::READY_NOW;
          return Drop();
        });
  }

  kj::Own<kj::AsyncIoStream> inner_;
  char dropped_[4096];
  size_t bytes_left_ = HttpConnections::kRequestBytesMax;
};

}  // namespace

void HttpConnections::Add(kj::Own<kj::AsyncIoStream> stream, const PeerHost& host) {
  if (PeerTable::Entry* const excess = hosts_.WhichMakesRoom(host); excess != nullptr) {
    Open& oldest = static_cast<Open&>(*excess);
    oldest.end->fulfill();
    Close(oldest.number);
  }
  const uint64_t number = next_++;
  auto ended = kj::newPromiseAndFulfiller<void>();
  std::unique_ptr<Open>& open = open_[number];
  open = std::make_unique<Open>();
  open->number = number;
  open->end = kj::mv(ended.fulfiller);
  hosts_.Add(*open, host);
  auto limited = kj::heap<Limited>(kj::mv(stream));
  Limited& connection = *limited;
  tasks_.add(server_.listenHttpCleanDrain(connection)
                 .then([this, &connection](bool) {
                   // In a later turn, when the server does not read any more.
                   return kj::evalLater([&connection] { return connection.End(); })
                       .exclusiveJoin(timer_.afterDelay(kEndTime));
                 })
                 .exclusiveJoin(timer_.afterDelay(connection_time_))
                 .exclusiveJoin(kj::mv(ended.promise))
                 .catch_([](kj::Exception&&) {})
                 .then([this, number] { Close(number); })
                 .attach(kj::mv(limited)));
}

void HttpConnections::Close(uint64_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  hosts_.Remove(*found->second);
  open_.erase(found);
}

}  // namespace hawser::observe
