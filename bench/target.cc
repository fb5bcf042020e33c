#include "hawser/bench/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "hawser/bench/bare_tls.h"
#include "hawser/bench/raw_socket.h"
#include "hawser/rpc/server.h"
#include "hawser/transport/uri.h"

ABSL_FLAG(
    std::string, address, "tcp://127.0.0.1:0",
    "where servers listen: rdma://ADDRESS:0 of an RDMA device's network interface, or tcp:// on any; raw "
    "sockets listen on the same address");

namespace hawser::bench {
namespace {

class TargetImpl final : public TargetService {
 public:
  explicit TargetImpl(Server& server) : server_(server) {}

  absl::Status Echo(ServerContext&, Target::EchoParams::Reader request,
                    Target::EchoResults::Builder reply) override {
    reply.setPayload(request.getPayload());
    return absl::OkStatus();
  }

  absl::Status Forward(ServerContext& context, Target::ForwardParams::Reader request,
                       Target::ForwardResults::Builder reply) override {
    const KeptBytes payload = context.KeepBytes(request.getPayload());
    reply.adoptPayload(context.Attach(payload.bytes, payload.owner));
    return absl::OkStatus();
  }

  absl::Status Put(ServerContext&, Target::PutParams::Reader request, Target::PutResults::Builder) override {
    // Reads one byte, so that a transfer that never happened is detected.
    const capnp::Data::Reader payload = request.getPayload();
    return payload.size() == 0 || payload[payload.size() - 1] == 'p' ? absl::OkStatus()
                                                                     : absl::DataLossError("wrong payload");
  }

  absl::Status Get(ServerContext& context, Target::GetParams::Reader request,
                   Target::GetResults::Builder reply) override {
    absl::MutexLock lock(&mutex_);
    std::shared_ptr<Buffer>& buffer = buffers_[request.getBytes()];
    if (buffer == nullptr) {
      absl::StatusOr<Buffer> made = server_.AllocateBuffer(request.getBytes());
      if (!made.ok()) return made.status();
      memset(made->data(), 'g', made->size_bytes());
      buffer = std::make_shared<Buffer>(*std::move(made));
    }
    reply.adoptPayload(context.Attach(buffer->reader(), buffer));
    return absl::OkStatus();
  }

  absl::Status Stats(ServerContext&, Target::StatsParams::Reader,
                     Target::StatsResults::Builder reply) override {
    const ServerStats stats = server_.stats();
    reply.setConnections(stats.connections);
    reply.setLeasedBytes(stats.leased_bytes);
    reply.setHeapBytes(HeapBytes());
    std::vector<std::string> decided;
    for (const PollerStats& poller : stats.pollers) decided.push_back(ToString(poller));
    reply.setPoller(absl::StrJoin(decided, "; another: "));
    return absl::OkStatus();
  }

 private:
  Server& server_;
  absl::Mutex mutex_;  // Handlers run on several pollers.
  std::map<uint32_t, std::shared_ptr<Buffer>> buffers_ ABSL_GUARDED_BY(mutex_);  // By size.
};

[[noreturn]] void Die(absl::string_view what, const absl::Status& status) {
  fprintf(stderr, "bench: %s: %s\n", std::string(what).c_str(), status.ToString().c_str());
  exit(1);
}

std::vector<std::string> Arguments(const std::string& what, const TargetOptions& options) {
  std::vector<std::string> arguments = {
      absl::StrCat("--serve=", what),
      absl::StrCat("--mode=", options.mode),
      absl::StrCat("--address=", options.address),
      absl::StrCat("--pin=", static_cast<int>(options.pin)),
      absl::StrCat("--slots=", options.slots),
      absl::StrCat("--keepalive=", absl::FormatDuration(options.keepalive_interval))};
  if (options.credentials.has_value()) {
    arguments.push_back(absl::StrCat("--certificate=", options.credentials->certificate));
    arguments.push_back(absl::StrCat("--key=", options.credentials->key));
    arguments.push_back(absl::StrCat("--authorities=", options.credentials->authorities));
  }
  return arguments;
}

transport::Uri AddressOf(const TargetOptions& options) {
  absl::StatusOr<transport::Uri> uri = transport::ParseUri(options.address);
  if (!uri.ok()) Die("--address", uri.status());
  return *std::move(uri);
}

}  // namespace

TargetOptions::TargetOptions() : address(absl::GetFlag(FLAGS_address)) {}

transport::PollingMode ParseMode(const std::string& mode) {
  return mode == "spin"    ? transport::PollingMode::kSpin
         : mode == "sleep" ? transport::PollingMode::kSleep
                           : transport::PollingMode::kAdaptive;
}

void ServeTarget(const TargetOptions& target) {
  ServerOptions options;
  options.poller.mode = ParseMode(target.mode);
  options.connection.slots = target.slots;
  options.connection.keepalive_interval = target.keepalive_interval;
  options.credentials = target.credentials;
  Server server(options);
  TargetImpl service(server);
  if (absl::Status status = server.AddService(&service); !status.ok()) Die("service", status);
  absl::StatusOr<std::string> uri = server.Listen(target.address);
  if (!uri.ok()) Die("listen", uri.status());
  printf("%s\n", uri->c_str());
  fflush(stdout);
  if (absl::Status status = server.Wait(); !status.ok()) Die("wait", status);
  exit(0);
}

ServerProcess StartTarget(const TargetOptions& options) {
  return ServerProcess(Arguments("target", options));
}

ServerProcess StartRaw(const std::string& what, const TargetOptions& options) {
  return ServerProcess(Arguments(what, options));
}

std::shared_ptr<transport::Runtime> MakeRuntime(const TargetOptions& target) {
  transport::RuntimeOptions options;
  options.pollers = 1;
  options.poller.mode = ParseMode(target.mode);
  absl::StatusOr<std::shared_ptr<transport::Runtime>> runtime =
      transport::Runtime::Create(AddressOf(target).scheme, options);
  if (!runtime.ok()) Die("runtime", runtime.status());
  return *std::move(runtime);
}

std::shared_ptr<Channel> ConnectTo(const ServerProcess& server, const TargetOptions& target,
                                   std::shared_ptr<transport::Runtime> runtime) {
  ChannelOptions options;
  options.runtime = std::move(runtime);
  options.connection.slots = target.slots;
  options.connection.keepalive_interval = target.keepalive_interval;
  options.credentials = target.credentials;
  options.default_timeout = absl::Seconds(60);
  absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(server.address(), options);
  if (!channel.ok()) Die("connect", channel.status());
  return *std::move(channel);
}

void EchoOnce(TargetStub& target, const std::string& payload) {
  auto call = target.Echo();
  call.request().setPayload(
      capnp::Data::Reader(reinterpret_cast<const uint8_t*>(payload.data()), payload.size()));
  const auto reply = call.Send().Wait();
  if (!reply.ok()) Die("echo", reply.status());
  if ((*reply)->getPayload().size() != payload.size()) Die("echo", absl::DataLossError("wrong size"));
}

void ServeIfAsked(int argc, char** argv) {
  std::string what;
  TargetOptions options;
  TlsCredentials credentials;
  for (int i = 1; i < argc; ++i) {
    const absl::string_view argument = argv[i];
    const auto value = [&] { return std::string(argument.substr(argument.find('=') + 1)); };
    if (absl::StartsWith(argument, "--serve=")) what = value();
    if (absl::StartsWith(argument, "--address=")) options.address = value();
    if (absl::StartsWith(argument, "--mode=")) options.mode = value();
    if (absl::StartsWith(argument, "--pin=")) options.pin = static_cast<Pin>(atoi(value().c_str()));
    if (absl::StartsWith(argument, "--slots=")) options.slots = static_cast<uint32_t>(atoi(value().c_str()));
    if (absl::StartsWith(argument, "--keepalive=")) {
      absl::ParseDuration(value(), &options.keepalive_interval);
    }
    if (absl::StartsWith(argument, "--certificate=")) credentials.certificate = value();
    if (absl::StartsWith(argument, "--key=")) credentials.key = value();
    if (absl::StartsWith(argument, "--authorities=")) credentials.authorities = value();
  }
  if (what.empty()) return;
  if (!credentials.certificate.empty()) options.credentials = credentials;
  PinTo(options.pin, /*server=*/true);
  if (what == "target") ServeTarget(options);
  if (what == "bare_tls")
    ServeBareTls(options.credentials.value_or(TlsCredentials()), AddressOf(options).host);
  ServeRaw(what, AddressOf(options).host, options.mode == "spin");
}

}  // namespace hawser::bench
