// Apache Thrift: the binary protocol in frames, with serialisers that the compiler specialises for both, and
// a thread for each connection of the server. Its client waits for one call at a time; to keep several in
// flight on a connection, this one calls the two halves of the generated methods (send_echo, recv_echo)
// itself.
#include <stdio.h>
#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/server/TThreadedServer.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TServerSocket.h>
#include <thrift/transport/TSocket.h>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/peers/thrift_wire/Target.h"
#include "hawser/bench/peers/peer.h"
#include "hawser/bench/peers/ready_sockets.h"

namespace hawser::bench::peers {
namespace {

using apache::thrift::TConfiguration;
using apache::thrift::protocol::TBinaryProtocolFactoryT;
using apache::thrift::protocol::TBinaryProtocolT;
using apache::thrift::server::TServerEventHandler;
using apache::thrift::server::TThreadedServer;
using apache::thrift::transport::TBufferedTransport;
using apache::thrift::transport::TFramedTransport;
using apache::thrift::transport::TServerSocket;
using apache::thrift::transport::TSocket;
using apache::thrift::transport::TTransport;
using apache::thrift::transport::TTransportFactory;

using Protocol = TBinaryProtocolT<TFramedTransport>;
using Stub = wire::TargetClientT<Protocol>;

// The default allows frames of 16 MB, and messages of 100 MiB.
std::shared_ptr<TConfiguration> Limits() {
  constexpr int kMost = std::numeric_limits<int>::max();
  return std::make_shared<TConfiguration>(kMost, kMost);
}

std::shared_ptr<TFramedTransport> Framed(std::shared_ptr<TTransport> socket) {
  return std::make_shared<TFramedTransport>(std::move(socket), Limits());
}

// What a side has received and not looked at yet, so that several small frames take one system call. Frames
// alone take two each, which costs a tenth to a half more time for a small call.
class Received final : public TBufferedTransport {
 public:
  explicit Received(std::shared_ptr<TTransport> socket)
      : TBufferedTransport(std::move(socket), kLargeBytes, Limits()) {}
  bool empty() const { return rBase_ == rBound_; }

 protected:
  // Large frames go past the buffer.
  uint32_t readSlow(uint8_t* data, uint32_t size) override {
    return empty() && size >= kLargeBytes ? transport_->read(data, size)
                                          : TBufferedTransport::readSlow(data, size);
  }
};

class FramedFactory final : public TTransportFactory {
 public:
  std::shared_ptr<TTransport> getTransport(std::shared_ptr<TTransport> socket) override {
    return Framed(std::make_shared<Received>(std::move(socket)));
  }
};

// As TServerSocket, but its connections have our limits.
class Listener final : public TServerSocket {
 public:
  using TServerSocket::TServerSocket;

 protected:
  std::shared_ptr<TSocket> createSocket(THRIFT_SOCKET client) override {
    return std::make_shared<TSocket>(client, Limits());
  }
};

class TargetHandler final : public wire::TargetIf {
 public:
  // Takes the request's payload away, which the processor no longer needs: it would be copied otherwise.
  void echo(std::string& reply, const std::string& payload) override {
    reply.swap(const_cast<std::string&>(payload));
  }

  void put(const std::string& payload) override {
    if (payload.empty() || payload.back() != 'p') Die("the server got a wrong payload");
  }
};

// The port is known once the server listens.
class PrintsPort final : public TServerEventHandler {
 public:
  explicit PrintsPort(TServerSocket& socket) : socket_(socket) {}
  void preServe() override {
    printf("127.0.0.1:%d\n", socket_.getPort());
    fflush(stdout);
  }

 private:
  TServerSocket& socket_;
};

class Connection {
 public:
  explicit Connection(const std::string& address)
      : socket_(std::make_shared<TSocket>(address.substr(0, address.find(':')),
                                          atoi(address.c_str() + address.find(':') + 1), Limits())),
        received_(std::make_shared<Received>(socket_)),
        stub_(std::make_shared<Protocol>(Framed(received_)), std::make_shared<Protocol>(Framed(socket_))) {
    socket_->open();
  }

  int fd() { return static_cast<int>(socket_->getSocketFD()); }
  Stub& stub() { return stub_; }
  std::deque<int>& calls() { return calls_; }
  // Nothing of a reply was received yet but what the socket has.
  bool received_nothing() const { return received_->empty(); }

 private:
  std::shared_ptr<TSocket> socket_;
  std::shared_ptr<Received> received_;
  Stub stub_;              // Sends and receives through buffers of their own, so that two threads may.
  std::deque<int> calls_;  // In flight, in the order of their replies.
};

// A thread that sends. A client that sends large requests while nothing reads the replies, and a server that
// sends these while it reads no requests, would wait for each other for ever.
class Sender {
 public:
  explicit Sender(std::function<void(int)> send) : send_(std::move(send)), thread_([this] { Run(); }) {}
  ~Sender() {
    Add(kStop);
    thread_.join();
  }

  void Add(int call) {
    const std::lock_guard lock(mutex_);
    due_.push_back(call);
    added_.notify_one();
  }

 private:
  static constexpr int kStop = -1;

  void Run() {
    try {
      for (int call = Take(); call != kStop; call = Take()) send_(call);
    } catch (const std::exception& error) {
      Die(error.what());
    }
  }

  int Take() {
    std::unique_lock lock(mutex_);
    added_.wait(lock, [this] { return !due_.empty(); });
    const int call = due_.front();
    due_.pop_front();
    return call;
  }

  const std::function<void(int)> send_;
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<int> due_;
  std::thread thread_;  // Last: it uses the others.
};

class ThriftClient final : public Client {
 public:
  ThriftClient(const std::string& address, const Load& load, Observer& observer)
      : load_(load), observer_(observer), payload_(MakePayload(load.bytes)) {
    for (int i = 0; i < load.connections; ++i) {
      connections_.push_back(std::make_unique<Connection>(address));
      ready_.Add(connections_.back()->fd(), i);
    }
    // A connection's buffers in the kernel hold that much at least.
    if (load.in_flight_each() > 1 && load.bytes * static_cast<size_t>(load.in_flight_each()) > kLargeBytes) {
      sender_ = std::make_unique<Sender>([this](int call) { SendNow(call); });
    }
  }

  void Send(int call) override {
    Of(call).calls().push_back(call);
    if (sender_ != nullptr) {
      sender_->Add(call);
    } else {
      SendNow(call);
    }
  }

  void Run() override {
    if (load_.connections == 1) {
      while (ReceiveFrom(*connections_[0])) continue;
      return;
    }
    while (true) {
      for (const int i : ready_.Wait()) {
        Connection& connection = *connections_[static_cast<size_t>(i)];
        do {
          if (!ReceiveFrom(connection)) return;
        } while (!connection.received_nothing());
      }
    }
  }

 private:
  Connection& Of(int call) { return *connections_[static_cast<size_t>(load_.ConnectionOf(call))]; }

  void SendNow(int call) {
    Stub& stub = Of(call).stub();
    if (load_.method == Method::kEcho) {
      stub.send_echo(payload_);
    } else {
      stub.send_put(payload_);
    }
  }

  // One reply. False: the observer wants no more.
  bool ReceiveFrom(Connection& connection) {
    if (load_.method == Method::kEcho) {
      connection.stub().recv_echo(reply_);
      CheckEcho(load_, reply_.data(), reply_.size());
    } else {
      connection.stub().recv_put();
    }
    const int call = connection.calls().front();
    connection.calls().pop_front();
    return observer_.OnReply(call);
  }

  const Load load_;
  Observer& observer_;
  const std::string payload_;
  std::string reply_;
  ReadySockets ready_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::unique_ptr<Sender> sender_;  // After connections_: it is to end first.
};

class Thrift final : public Peer {
 public:
  const char* name() const override { return "thrift"; }
  // Tried: 300 MB pass, and 400 MB end the connection.
  size_t bytes_max() const override { return 256 << 20; }

  void Serve() override {
    KeepFreedPages();
    const auto socket = std::make_shared<Listener>("127.0.0.1", 0);
    const auto processor =
        std::make_shared<wire::TargetProcessorT<Protocol>>(std::make_shared<TargetHandler>());
    TThreadedServer server(std::shared_ptr<apache::thrift::TProcessor>(processor), socket,
                           std::make_shared<FramedFactory>(),
                           std::make_shared<TBinaryProtocolFactoryT<TFramedTransport>>());
    server.setServerEventHandler(std::make_shared<PrintsPort>(*socket));
    server.serve();
  }

  std::unique_ptr<Client> Connect(const std::string& address, const Load& load, Observer& observer) override {
    KeepFreedPages();
    return std::make_unique<ThriftClient>(address, load, observer);
  }
};

}  // namespace
}  // namespace hawser::bench::peers

int main(int argc, char** argv) {
  hawser::bench::peers::Thrift peer;
  return hawser::bench::peers::Main(argc, argv, peer);
}
