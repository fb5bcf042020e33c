#include "hawser/services/perf/perf_service.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/base/thread.h"
#include "hawser/services/perf/raw_queue_pair_port.h"
#include "hawser/services/perf/raw_socket_port.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

// What is cheaper to copy than to send from where it is.
constexpr size_t kCopiedMax = 4096;
// Beside a payload in its message.
constexpr uint64_t kAroundPayload = 1024;
// Cap'n Proto's own limit.
constexpr uint64_t kDataMax = (512 << 20) - 1;
constexpr uint8_t kByte = PerfMemory::kByte;

uint64_t PoolBytes(const ServerOptions& options) {
  return options.runtime != nullptr ? options.runtime->buffers().stats().limit_bytes
                                    : options.pool.limit_bytes;
}

absl::string_view SchemeOf(const std::string& address) {
  return absl::string_view(address).substr(0, address.find(':'));
}

absl::StatusOr<SocketAddress> PeerOf(const ServerContext& context) {
  const absl::StatusOr<transport::Uri> uri = transport::ParseUri(context.peer_address());
  if (!uri.ok()) return uri.status();
  return transport::ParseNumericHost(uri->host);
}

// What the socket of a raw port serves. nullopt: it is for a queue pair, or unknown.
std::optional<measure::RawService> SocketService(perf::RawService service) {
  switch (service) {
    case perf::RawService::ECHO:
      return measure::RawService::kEcho;
    case perf::RawService::PING_PONG:
      return measure::RawService::kPingPong;
    case perf::RawService::SINK:
      return measure::RawService::kSink;
    case perf::RawService::SOURCE:
      return measure::RawService::kSource;
    default:
      return std::nullopt;
  }
}

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

}  // namespace

PerfService::PerfService(ServerExtensionHost& host, transport::Environment& environment,
                         const ServerOptions& options, const Settings& settings)
    : host_(host),
      environment_(environment),
      connection_(options.connection),
      polling_(options.poller.mode),
      has_credentials_(options.credentials.has_value()),
      shared_bytes_max_(
          std::bit_floor(std::max<uint64_t>(PoolBytes(options) / kSharedPoolFraction, kCopiedMax))),
      settings_(settings),
      memory_(host, settings.refusal) {}

PerfService::~PerfService() { Close(absl::InfinitePast()); }

uint64_t PerfService::interface_id() const { return capnp::typeId<Wire>(); }

void PerfService::Close(absl::Time /*deadline*/) {
  std::vector<std::unique_ptr<RawPort>> ports;
  std::vector<std::unique_ptr<Waiting>> waiting;
  Payloads payloads;
  std::thread thread;
  {
    const absl::MutexLock lock(&mutex_);
    closed_ = true;
    changed_.SignalAll();
    ports.swap(raw_ports_);
    while (auto next = TakeWaiting()) waiting.push_back(std::move(next));
    payloads.swap(payloads_);
    thread = std::move(thread_);
  }
  for (const auto& each : waiting) each->call.Finish(ShuttingDown());
  memory_.Close();
  for (const auto& port : ports) port->Stop();  // All at once, before the first is waited for.
  ports.clear();
  if (thread.joinable()) thread.join();
}

// Whether so many bytes, more than kCopiedMax, are sent out of a buffer that answers share.
// ServerContext::Attach() copies what ends within a word of it, and a large copy is not for the poller: that
// has a buffer of its own.
bool PerfService::IsShared(uint64_t bytes) const { return bytes <= shared_bytes_max_ && bytes % 8 == 0; }

// A power of two, so that sizes that rise slowly do not need a new payload each; and no larger one, which
// would then be kept for what is small beside it.
uint64_t PerfService::SharedSizeFor(uint64_t bytes) const {
  return std::min<uint64_t>(std::bit_ceil(bytes), payload_bytes_max());
}

uint64_t PerfService::payload_bytes_max() const {
  const uint64_t most = connection_.message_bytes_max;
  return std::min(kDataMax, most - std::min(most, kAroundPayload));
}

absl::Status PerfService::Limits(ServerContext&, Wire::LimitsParams::Reader,
                                 Wire::LimitsResults::Builder reply) {
  reply.setMessageBytesMax(connection_.message_bytes_max);
  reply.setSlots(connection_.slots);
  reply.setReceiveBufferBytes(connection_.receive_buffer_bytes);
  return absl::OkStatus();
}

absl::Status PerfService::Echo(ServerContext& context, Wire::EchoParams::Reader request,
                               Wire::EchoResults::Builder reply) {
  const capnp::Data::Reader payload = request.getPayload();
  if (payload.size() <= kCopiedMax) {
    reply.setPayload(payload);
  } else {
    const KeptBytes kept = context.KeepBytes(payload);
    reply.adoptPayload(context.Attach(kept.bytes, kept.owner));
  }
  return absl::OkStatus();
}

absl::Status PerfService::Put(ServerContext&, Wire::PutParams::Reader request,
                              Wire::PutResults::Builder reply) {
  reply.setBytes(request.getPayload().size());
  return absl::OkStatus();
}

absl::Status PerfService::Get(ServerContext& context, Wire::GetParams::Reader request,
                              Wire::GetResults::Builder reply) {
  const uint64_t bytes = request.getBytes();
  if (bytes > payload_bytes_max()) {
    return absl::InvalidArgumentError(absl::StrCat("get of ", bytes, " bytes: the server sends ",
                                                   payload_bytes_max(),
                                                   " at most (ConnectionOptions::message_bytes_max)"));
  }
  if (bytes <= kCopiedMax) {
    memset(reply.initPayload(static_cast<unsigned>(bytes)).begin(), kByte, bytes);
    return absl::OkStatus();
  }
  const absl::string_view scheme = SchemeOf(context.peer_address());
  std::shared_ptr<const Buffer> buffer;
  {
    const absl::MutexLock lock(&mutex_);
    const auto found =
        IsShared(bytes) ? payloads_.find({std::string(scheme), SharedSizeFor(bytes)}) : payloads_.end();
    if (found != payloads_.end()) {
      found->second.unused_from = absl::Now() + settings_.keep;
      buffer = found->second.buffer;
    } else {
      // To fill memory takes long: not here.
      if (absl::Status started = StartThreadOnce(); !started.ok()) return started;
      const absl::StatusOr<SocketAddress> peer = PeerOf(context);
      auto waiting = std::make_unique<Waiting>(context.Defer(), reply, scheme, bytes);
      waiting_.Add(*waiting.release(), peer.ok() ? PeerHost(*peer) : PeerHost());
      changed_.SignalAll();
      return absl::OkStatus();
    }
  }
  reply.adoptPayload(context.Attach({buffer->data(), bytes}, buffer));
  return absl::OkStatus();
}

std::unique_ptr<PerfService::Waiting> PerfService::TakeWaiting() {
  return std::unique_ptr<Waiting>(static_cast<Waiting*>(waiting_.TakeNext()));
}

void PerfService::Answer(Waiting& waiting) {
  // To fill a payload takes long: not for a call that nothing waits for.
  if (waiting.call.context().cancelled()) {
    return waiting.call.Finish(absl::CancelledError("the caller has stopped waiting"));
  }
  const bool is_shared = IsShared(waiting.bytes);
  const std::pair<std::string, uint64_t> key(waiting.scheme,
                                             is_shared ? SharedSizeFor(waiting.bytes) : waiting.bytes);
  std::shared_ptr<const Buffer> buffer;
  bool is_closed;
  {
    const absl::MutexLock lock(&mutex_);
    is_closed = closed_;
    if (const auto found = payloads_.find(key); is_shared && !is_closed && found != payloads_.end()) {
      buffer = found->second.buffer;
    }
  }
  if (is_closed) return waiting.call.Finish(ShuttingDown());
  if (buffer == nullptr) {
    absl::StatusOr<Buffer> made = host_.AllocateOn(waiting.scheme, key.second);
    if (!made.ok()) return waiting.call.Finish(made.status());
    memset(made->data(), kByte, key.second);
    const uint64_t refusals = host_.RefusalsOn(waiting.scheme);
    buffer = std::make_shared<const Buffer>(*std::move(made));
    const absl::MutexLock lock(&mutex_);
    if (is_shared && !closed_) {
      payloads_[key] = {buffer, absl::Now() + settings_.keep, refusals};
      if (look_at_payloads_ == absl::InfiniteFuture()) {
        look_at_payloads_ = absl::Now() + std::min(settings_.keep, settings_.look);
      }
    }
  }
  // From here on only the answer refers to a buffer that is not shared, so it counts against the client's
  // host.
  const capnp::Data::Reader payload(buffer->data(), waiting.bytes);
  waiting.reply.adoptPayload(waiting.call.context().Attach(payload, std::move(buffer)));
  waiting.call.Finish();
}

absl::Status PerfService::OpenRaw(ServerContext& context, Wire::OpenRawParams::Reader request,
                                  Wire::OpenRawResults::Builder reply) {
  if (has_credentials_) {
    return absl::FailedPreconditionError(
        "this server has credentials, and a raw connection would have no TLS: it opens none");
  }
  const absl::StatusOr<SocketAddress> peer = PeerOf(context);
  if (!peer.ok()) return peer.status();
  const capnp::Text::Reader known_as = request.getAddress();
  RawPort::Options options = {.address = AddressFor({known_as.begin(), known_as.size()}),
                              .host = PeerHost(*peer),
                              .polling = polling_,
                              .accept_time = settings_.accept,
                              .deadline = absl::Now() + settings_.raw_life};
  environment_.FillRandom(absl::MakeSpan(options.token));
  std::shared_ptr<transport::Runtime> runtime;
  if (request.getService() == perf::RawService::QUEUE_PAIR) {
    auto of_client = host_.RuntimeAt(SchemeOf(context.peer_address()), options.address);
    if (!of_client.ok()) return of_client.status();
    runtime = *std::move(of_client);
    // A network that carries TLS is made of sockets, and each listener there may have many half-open ones.
    if (runtime->carries_tls() && !settings_.queue_pairs_of_sockets) {
      return absl::FailedPreconditionError(
          absl::StrCat("over ", runtime->scheme(), ":// the server opens raw sockets, and no queue pairs"));
    }
  }
  const absl::MutexLock lock(&mutex_);
  const auto open =
      std::count_if(raw_ports_.begin(), raw_ports_.end(), [](auto& port) { return !port->ended(); });
  const auto of_host = std::count_if(raw_ports_.begin(), raw_ports_.end(), [&](auto& port) {
    return !port->ended() && port->host() == options.host;
  });
  // The thread joins those that have ended.
  if (open >= kRawPortsMax || of_host >= kRawPortsOfHostMax ||
      raw_ports_.size() >= size_t{4} * kRawPortsMax) {
    return absl::ResourceExhaustedError(absl::StrCat("the server has ", kRawPortsMax, " raw ports at most, ",
                                                     kRawPortsOfHostMax, " of one host; now ", open, ", and ",
                                                     of_host, " of this host; each lasts ",
                                                     absl::FormatDuration(settings_.raw_life), " at most"));
  }
  if (absl::Status started = StartThreadOnce(); !started.ok()) return started;
  auto port = OpenPort(request.getService(), options, std::move(runtime));
  if (!port.ok()) return port.status();
  reply.setPort((*port)->port());
  reply.setToken({options.token.data(), options.token.size()});
  raw_ports_.push_back(*std::move(port));
  changed_.SignalAll();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RawPort>> PerfService::OpenPort(perf::RawService service,
                                                               const RawPort::Options& options,
                                                               std::shared_ptr<transport::Runtime> runtime) {
  const auto on_end = [this] {
    const absl::MutexLock at_end(&mutex_);
    changed_.SignalAll();
  };
  if (runtime != nullptr) return RawQueuePairPort::Open(options, std::move(runtime), on_end);
  if (const auto of_socket = SocketService(service)) return RawSocketPort::Open(options, *of_socket, on_end);
  return absl::InvalidArgumentError(
      absl::StrCat("this server knows no raw service ", static_cast<uint16_t>(service)));
}

absl::Status PerfService::Share(ServerContext& context, Wire::ShareParams::Reader request,
                                Wire::ShareResults::Builder reply) {
  {
    const absl::MutexLock lock(&mutex_);
    if (absl::Status started = StartThreadOnce(); !started.ok()) return started;
  }
  absl::Status shared = memory_.Share(context, request.getAccess(), reply);
  const absl::MutexLock lock(&mutex_);
  changed_.SignalAll();
  return shared;
}

SocketAddress PerfService::AddressFor(absl::string_view known_as) const {
  const std::vector<SocketAddress> listening = host_.listening();
  if (listening.empty()) return SocketAddress();  // It shuts down.
  absl::StatusOr<SocketAddress> wanted = transport::ParseNumericHost(known_as);
  SocketAddress every;
  for (SocketAddress address : listening) {
    address.set_port(0);
    if (wanted.ok() && address.ToString() == wanted->ToString()) return address;
    // [::] serves IPv4, too.
    if (address.is_unspecified() && (every.family() == AF_UNSPEC || address.family() == AF_INET6)) {
      every = address;
    }
  }
  return every.family() != AF_UNSPEC ? every : listening[0];
}

absl::Status PerfService::StartThreadOnce() {
  if (closed_) return ShuttingDown();
  if (thread_.joinable()) return absl::OkStatus();
  absl::StatusOr<std::thread> thread = StartThread("hawser-perf", [this] { Run(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return absl::OkStatus();
}

void PerfService::Run() {
  while (true) {
    std::vector<std::unique_ptr<RawPort>> ended;
    std::vector<std::shared_ptr<const Buffer>> unused;
    std::unique_ptr<Waiting> waiting;
    bool is_memory_wanted = false;
    {
      const absl::MutexLock lock(&mutex_);
      const auto idle = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return !closed_ && waiting_.empty() && !memory_.is_wanted() &&
               std::none_of(raw_ports_.begin(), raw_ports_.end(), [](auto& port) { return port->ended(); });
      };
      while (idle() && absl::Now() < NextTime()) changed_.WaitWithDeadline(&mutex_, NextTime());
      if (closed_) return;
      const absl::Time now = absl::Now();
      for (const auto& port : raw_ports_) {
        if (port->deadline() <= now) port->Stop();
      }
      ended = TakeEnded();
      unused = TakeUnused(now);
      waiting = TakeWaiting();
      is_memory_wanted = memory_.is_wanted();
    }
    if (is_memory_wanted) memory_.MakeNext();
    if (waiting != nullptr) Answer(*waiting);
  }
}

absl::Time PerfService::NextTime() const {
  absl::Time next = look_at_payloads_;
  for (const auto& port : raw_ports_) next = std::min(next, port->deadline());
  return next;
}

std::vector<std::unique_ptr<RawPort>> PerfService::TakeEnded() {
  // Those whose time is over end within microseconds: Stop() was called. So they count as ended.
  const absl::Time now = absl::Now();
  const auto ended = std::partition(raw_ports_.begin(), raw_ports_.end(),
                                    [now](auto& port) { return !port->ended() && port->deadline() > now; });
  std::vector<std::unique_ptr<RawPort>> taken(std::make_move_iterator(ended),
                                              std::make_move_iterator(raw_ports_.end()));
  raw_ports_.erase(ended, raw_ports_.end());
  return taken;
}

std::vector<std::shared_ptr<const Buffer>> PerfService::TakeUnused(absl::Time now) {
  std::vector<std::shared_ptr<const Buffer>> taken;
  if (now < look_at_payloads_) return taken;
  for (auto each = payloads_.begin(); each != payloads_.end();) {
    Payload& payload = each->second;
    const bool is_short = host_.RefusalsOn(each->first.first) != payload.refusals_then;
    // Those that answers refer to would not be freed, and would not be known any more.
    if ((now < payload.unused_from && !is_short) || payload.buffer.use_count() > 1) {
      ++each;
      continue;
    }
    taken.push_back(std::move(payload.buffer));
    each = payloads_.erase(each);
  }
  look_at_payloads_ =
      payloads_.empty() ? absl::InfiniteFuture() : now + std::min(settings_.keep, settings_.look);
  return taken;
}

}  // namespace hawser::internal
