// gRPC, with one completion queue and one thread a side, which its own benchmarks find fastest for a core a
// side. Small payloads cross as a field of a protobuf message, large ones as bytes (grpc::ByteBuffer), which
// nothing copies to serialise.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <stdio.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/peers/echo.grpc.pb.h"
#include "hawser/bench/peers/peer.h"
#include "hawser/tests/tls/certificates.h"

namespace hawser::bench::peers {
namespace {

// Calls of each method that the server can accept without being asked to.
constexpr int kArmed = 160;
constexpr int kFrameBytes = 1 << 20;
constexpr int kWindowBytes = 64 << 20;

using Service = wire::Target::WithAsyncMethod_Echo<
    wire::Target::WithRawMethod_EchoBytes<wire::Target::WithRawMethod_Put<wire::Target::Service>>>;

// Size, first and last byte.
struct Ends {
  size_t bytes = 0;
  uint8_t first = 0, last = 0;
};

Ends EndsOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) Die("a message cannot be read");
  std::erase_if(slices, [](const grpc::Slice& slice) { return slice.size() == 0; });
  if (slices.empty()) return {};
  return {buffer.Length(), *slices.front().begin(), *(slices.back().end() - 1)};
}

// What a completion queue returns: the next step of a call.
class Step {
 public:
  virtual ~Step() = default;
  virtual void Next(bool ok) = 0;
};

// One call that the server can have under way. It serves one after the other. `kAccept`: the method of
// Service that waits for the next.
template <typename Message, auto kAccept>
class ServerCall final : public Step {
 public:
  ServerCall(Service& service, grpc::ServerCompletionQueue& queue, Method method)
      : service_(service), queue_(queue), method_(method) {
    Accept();
  }

  // Not ok: the client is gone.
  void Next(bool ok) override {
    if (!ok || std::exchange(answered_, true)) return Accept();
    if (method_ == Method::kEcho) return writer_->Finish(message_, grpc::Status::OK, Tag());
    CheckPut();
    writer_->Finish(Message(), grpc::Status::OK, Tag());
  }

 private:
  void* Tag() { return static_cast<Step*>(this); }

  void Accept() {
    answered_ = false;
    message_.Clear();
    writer_.reset();  // It uses the context.
    context_.emplace();
    writer_.emplace(&*context_);
    (service_.*kAccept)(&*context_, &message_, &*writer_, &queue_, &queue_, Tag());
  }

  void CheckPut() {
    if constexpr (std::is_same_v<Message, grpc::ByteBuffer>) {
      if (EndsOf(message_).last != 'p') Die("the server got a wrong payload");
    }
  }

  Service& service_;
  grpc::ServerCompletionQueue& queue_;
  const Method method_;
  std::optional<grpc::ServerContext> context_;
  Message message_;
  std::optional<grpc::ServerAsyncResponseWriter<Message>> writer_;
  bool answered_ = false;
};

using EchoCall = ServerCall<wire::Payload, &Service::RequestEcho>;
using EchoBytesCall = ServerCall<grpc::ByteBuffer, &Service::RequestEchoBytes>;
using PutCall = ServerCall<grpc::ByteBuffer, &Service::RequestPut>;

std::shared_ptr<grpc::ChannelCredentials> ClientCredentials(
    const std::optional<TlsCredentials>& credentials) {
  if (!credentials.has_value()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({.pem_root_certs = ReadFile(credentials->authorities),
                               .pem_private_key = ReadFile(credentials->key),
                               .pem_cert_chain = ReadFile(credentials->certificate)});
}

std::shared_ptr<grpc::ServerCredentials> ServerCredentials(const std::optional<TlsCredentials>& credentials) {
  if (!credentials.has_value()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = ReadFile(credentials->authorities);
  options.pem_key_cert_pairs = {{ReadFile(credentials->key), ReadFile(credentials->certificate)}};
  return grpc::SslServerCredentials(options);
}

class GrpcClient final : public Client {
 public:
  GrpcClient(const std::string& address, const std::optional<TlsCredentials>& credentials, const Load& load,
             Observer& observer)
      : load_(load),
        observer_(observer),
        payload_(MakePayload(load.bytes)),
        calls_(static_cast<size_t>(load.in_flight)) {
    message_.set_data(payload_);
    const grpc::Slice slice(payload_.data(), payload_.size(), grpc::Slice::STATIC_SLICE);
    bytes_ = grpc::ByteBuffer(&slice, 1);
    for (int i = 0; i < load.connections; ++i) channels_.push_back(ChannelTo(address, credentials));
    for (const auto& channel : channels_) {
      if (!channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10))) {
        Die("no connection to " + address);
      }
      stubs_.push_back(wire::Target::NewStub(channel));
      byte_stubs_.push_back(
          std::make_unique<grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>>(channel));
    }
  }

  ~GrpcClient() override {
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) continue;
  }

  void Send(int number) override {
    Call& call = calls_[static_cast<size_t>(number)];
    call.number = number;
    // In this order: the readers of the last call are in memory that its context owns.
    call.reader.reset();
    call.bytes_reader.reset();
    call.context.emplace();
    const auto connection = static_cast<size_t>(load_.ConnectionOf(number));
    if (AsBytes()) {
      call.bytes_reader = byte_stubs_[connection]->PrepareUnaryCall(
          &*call.context, load_.method == Method::kPut ? kPut : kEchoBytes, bytes_, &queue_);
      call.bytes_reader->StartCall();
      call.bytes_reader->Finish(&call.bytes, &call.status, &call);
    } else {
      call.reader = stubs_[connection]->AsyncEcho(&*call.context, message_, &queue_);
      call.reader->Finish(&call.message, &call.status, &call);
    }
  }

  void Run() override {
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
      Call& call = *static_cast<Call*>(tag);
      if (!call.status.ok()) Die(absl::StrCat("a call failed: ", call.status.error_message()));
      Check(call);
      if (!observer_.OnReply(call.number)) return;
    }
  }

 private:
  struct Call {
    int number = 0;
    std::optional<grpc::ClientContext> context;
    grpc::Status status;
    wire::Payload message;
    grpc::ByteBuffer bytes;
    std::unique_ptr<grpc::ClientAsyncResponseReader<wire::Payload>> reader;
    std::unique_ptr<grpc::ClientAsyncResponseReader<grpc::ByteBuffer>> bytes_reader;
  };

  inline static const std::string kEchoBytes = "/hawser.bench.peers.wire.Target/EchoBytes";
  inline static const std::string kPut = "/hawser.bench.peers.wire.Target/Put";

  // Without the local pool, channels to one address share one connection.
  static std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                                  const std::optional<TlsCredentials>& credentials) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetMaxReceiveMessageSize(-1);
    return grpc::CreateCustomChannel(address, ClientCredentials(credentials), arguments);
  }

  bool AsBytes() const { return load_.method == Method::kPut || load_.bytes >= kLargeBytes; }

  void Check(Call& call) {
    if (load_.method == Method::kPut) return;
    if (AsBytes()) {
      const Ends ends = EndsOf(call.bytes);
      call.bytes.Clear();
      CheckEcho(load_, ends.bytes, ends.first, ends.last);
    } else {
      CheckEcho(load_, call.message.data().data(), call.message.data().size());
    }
  }

  const Load load_;
  Observer& observer_;
  const std::string payload_;
  wire::Payload message_;   // The payload, as a small call sends it.
  grpc::ByteBuffer bytes_;  // As a large one sends it.
  grpc::CompletionQueue queue_;
  std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<std::unique_ptr<wire::Target::Stub>> stubs_;
  std::vector<std::unique_ptr<grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>>> byte_stubs_;
  std::vector<Call> calls_;
};

class Grpc final : public Peer {
 public:
  const char* name() const override { return "grpc"; }
  bool has_tls() const override { return true; }

  void Serve() override {
    KeepFreedPages();
    Service service;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", ServerCredentials(credentials), &port);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrameBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWindowBytes);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(&service);
    const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
    if (server == nullptr) Die("the server did not start");
    std::vector<std::unique_ptr<Step>> calls;
    for (int i = 0; i < kArmed; ++i) {
      calls.push_back(std::make_unique<EchoCall>(service, *queue, Method::kEcho));
      calls.push_back(std::make_unique<EchoBytesCall>(service, *queue, Method::kEcho));
      calls.push_back(std::make_unique<PutCall>(service, *queue, Method::kPut));
    }
    printf("127.0.0.1:%d\n", port);
    fflush(stdout);
    void* tag;
    bool ok;
    while (queue->Next(&tag, &ok)) static_cast<Step*>(tag)->Next(ok);
  }

  std::unique_ptr<Client> Connect(const std::string& address, const Load& load, Observer& observer) override {
    KeepFreedPages();
    return std::make_unique<GrpcClient>(address, credentials, load, observer);
  }
};

}  // namespace
}  // namespace hawser::bench::peers

int main(int argc, char** argv) {
  hawser::bench::peers::Grpc peer;
  return hawser::bench::peers::Main(argc, argv, peer);
}
