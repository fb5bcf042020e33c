// The floor: plain sockets that block, with nothing in between. There are no messages on the wire, only
// payloads of a size that both sides know.
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hawser/bench/peers/peer.h"
#include "hawser/bench/peers/ready_sockets.h"
#include "hawser/bench/raw_socket.h"

namespace hawser::bench::peers {
namespace {

constexpr size_t kBatchBytes = 256 << 10;  // As much as the server's "echo" receives at once.

RawSocket ConnectFor(RawService service, const std::string& address) {
  RawSocket socket = ConnectRaw(address);
  if (!socket.Send(&service, sizeof(service), false)) Die("the server closed a new connection");
  return socket;
}

// One echo at a time on one connection: a ping-pong of blocking calls.
class PingPongClient final : public Client {
 public:
  PingPongClient(const std::string& address, const Load& load, Observer& observer)
      : load_(load),
        observer_(observer),
        payload_(MakePayload(load.bytes)),
        reply_(load.bytes),
        socket_(ConnectFor(RawService::kPingPong, address)) {
    const uint64_t size = load.bytes;
    socket_.Send(&size, sizeof(size), false);
  }

  void Send(int) override {
    if (!socket_.Send(payload_.data(), payload_.size(), false)) Die("the server closed a connection");
    in_flight_ = true;
  }

  void Run() override {
    while (std::exchange(in_flight_, false)) {
      if (!socket_.Receive(reply_.data(), reply_.size(), false)) Die("the server closed a connection");
      CheckEcho(load_, reply_.data(), reply_.size());
      reply_.front() = reply_.back() = 0;
      observer_.OnReply(0);
    }
  }

 private:
  const Load load_;
  Observer& observer_;
  const std::string payload_;
  std::vector<uint8_t> reply_;
  RawSocket socket_;
  bool in_flight_ = false;
};

// One connection with several calls in flight. What is due is sent with as few system calls as possible, and
// so are replies received.
class Stream {
 public:
  Stream(RawSocket socket, const Load& load, Observer& observer)
      : socket_(std::move(socket)), load_(load), observer_(observer) {
    std::string request = MakePayload(load.bytes);
    if (load.method ==
        Method::kPut) {  // The server's "sink" wants the size before each, and answers with one byte.
      const uint64_t size = load.bytes;
      request.insert(0, reinterpret_cast<const char*>(&size), sizeof(size));
      reply_bytes_ = 1;
    }
    request_bytes_ = request.size();
    const size_t copies = std::clamp<size_t>(kBatchBytes / request_bytes_, 1, load.in_flight_each());
    for (size_t i = 0; i < copies; ++i) requests_ += request;
    replies_.resize(std::max<size_t>(kBatchBytes / reply_bytes_, 1) * reply_bytes_);
  }

  int fd() const { return socket_.fd(); }

  void Add(int call) {
    calls_.push_back(call);
    unsent_bytes_ += request_bytes_;
  }

  // False: the kernel takes no more for now.
  bool Flush() {
    while (unsent_bytes_ > 0) {
      const size_t offset = sent_bytes_ % request_bytes_;
      const size_t most = std::min(requests_.size() - offset, unsent_bytes_);
      const ssize_t n = send(fd(), requests_.data() + offset, most, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) return false;
      if (n < 0 && errno != EINTR) Die(std::string("send: ") + strerror(errno));
      if (n <= 0) continue;
      sent_bytes_ += static_cast<size_t>(n);
      unsent_bytes_ -= static_cast<size_t>(n);
    }
    return true;
  }

  // Receives once, if there is anything or `block`. False: the observer wants no more.
  bool Receive(bool block) {
    if (filled_ == checked_) filled_ = checked_ = 0;
    // Never of 0 bytes: replies fill the buffer without a rest.
    const ssize_t n =
        recv(fd(), replies_.data() + filled_, replies_.size() - filled_, block ? 0 : MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) Die("the server closed a connection");
    filled_ += static_cast<size_t>(n);
    while (filled_ - checked_ >= reply_bytes_) {
      uint8_t* const reply = replies_.data() + checked_;
      if (load_.method == Method::kEcho) CheckEcho(load_, reply, reply_bytes_);
      reply[0] = reply[reply_bytes_ - 1] = 0;
      checked_ += reply_bytes_;
      const int call = calls_.front();
      calls_.pop_front();
      if (!observer_.OnReply(call)) return false;
    }
    return true;
  }

 private:
  RawSocket socket_;
  const Load load_;
  Observer& observer_;
  std::string requests_;  // One request, several times.
  size_t request_bytes_ = 0;
  size_t reply_bytes_ = load_.bytes;
  size_t sent_bytes_ = 0, unsent_bytes_ = 0;
  std::vector<uint8_t> replies_;
  size_t filled_ = 0, checked_ = 0;  // Bytes of replies_.
  std::deque<int> calls_;            // In flight, in the order of their replies.
};

class StreamClient final : public Client {
 public:
  StreamClient(const std::string& address, const Load& load, Observer& observer) : load_(load) {
    const RawService service = load.method == Method::kPut  ? RawService::kSink
                               : load.in_flight_each() == 1 ? RawService::kPingPong
                                                            : RawService::kEcho;
    for (int i = 0; i < load.connections; ++i) {
      RawSocket socket = ConnectFor(service, address);
      const uint64_t size = load.bytes;
      if (service == RawService::kPingPong) socket.Send(&size, sizeof(size), false);
      ready_.Add(socket.fd(), i);
      streams_.push_back(std::make_unique<Stream>(std::move(socket), load, observer));
    }
    waits_to_send_.resize(streams_.size());
  }

  void Send(int call) override { streams_[static_cast<size_t>(load_.ConnectionOf(call))]->Add(call); }

  void Run() override {
    for (int i = 0; i < load_.connections; ++i) Flush(i);
    const std::vector<int> only = {0};
    while (true) {
      // Without epoll where the socket itself can be waited on.
      const bool block = load_.connections == 1 && !waits_to_send_[0];
      for (const int i : block ? only : ready_.Wait()) {
        if (!streams_[static_cast<size_t>(i)]->Receive(block)) return;
        Flush(i);
      }
    }
  }

 private:
  void Flush(int connection) {
    const auto i = static_cast<size_t>(connection);
    const bool waits = !streams_[i]->Flush();
    if (waits == waits_to_send_[i]) return;
    waits_to_send_[i] = waits;
    ready_.WaitForWritable(streams_[i]->fd(), connection, waits);
  }

  const Load load_;
  ReadySockets ready_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<bool> waits_to_send_;
};

class Raw final : public Peer {
 public:
  const char* name() const override { return "raw"; }

  void Serve() override { ServeRaw("any", "127.0.0.1", /*spin=*/false); }

  std::unique_ptr<Client> Connect(const std::string& address, const Load& load, Observer& observer) override {
    if (load.method == Method::kEcho && load.in_flight == 1) {
      return std::make_unique<PingPongClient>(address, load, observer);
    }
    return std::make_unique<StreamClient>(address, load, observer);
  }
};

}  // namespace
}  // namespace hawser::bench::peers

int main(int argc, char** argv) {
  hawser::bench::peers::Raw peer;
  return hawser::bench::peers::Main(argc, argv, peer);
}
