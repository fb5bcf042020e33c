#include "hawser/rpc/services/introspection.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/base/thread.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

// As the status server: pollers go first.
constexpr int kNice = 10;

// The numeric host of `uri`. Of family AF_UNSPEC if it has none.
SocketAddress AddressOf(const absl::StatusOr<transport::Uri>& uri) {
  if (!uri.ok()) return {};
  const absl::StatusOr<SocketAddress> address = transport::ParseNumericHost(uri->host);
  return address.ok() ? *address : SocketAddress();
}

uint64_t BytesOf(observe::wire::Snapshot::Builder snapshot) {
  return snapshot.asReader().totalSize().wordCount * sizeof(capnp::word);
}

}  // namespace

Introspector::Introspector(Introspection who, uint64_t bytes_max, transport::Environment& environment,
                           Source source)
    : who_(who), bytes_max_(bytes_max), environment_(environment), source_(std::move(source)) {}

Introspector::~Introspector() { End(); }

uint64_t Introspector::interface_id() const { return capnp::typeId<introspection::Introspection>(); }

absl::Status Introspector::Snapshot(ServerContext& context,
                                    introspection::Introspection::SnapshotParams::Reader,
                                    introspection::Introspection::SnapshotResults::Builder reply) {
  const absl::StatusOr<transport::Uri> uri = transport::ParseUri(context.peer_address());
  const SocketAddress address = AddressOf(uri);
  // Only the kernel's TCP says truly that a peer is on this machine; over RDMA its own request says where it
  // comes from.
  const bool is_local = address.is_loopback() && uri->scheme == transport::kFallbackScheme;
  if (who_ != Introspection::kEveryone && !is_local) {
    return absl::PermissionDeniedError(absl::StrCat(
        "the server tells what it is doing to clients that come over loopback only, and this one "
        "comes from ",
        context.peer_address(),
        "; ask on its machine, or set ServerOptions::introspection to kEveryone there"));
  }
  const PeerHost host(address);
  absl::MutexLock lock(&mutex_);
  if (closed_) return absl::UnavailableError("the server has ended");
  const auto of_host = static_cast<size_t>(std::count_if(
      waiting_.begin(), waiting_.end(), [&](const Waiting& waiting) { return waiting.host == host; }));
  if (waiting_.size() >= kWaitingMax || of_host >= kWaitingOfHostMax) {
    return absl::ResourceExhaustedError(absl::StrCat(
        waiting_.size(), " calls wait for a snapshot of the server already, ", of_host, " of this host"));
  }
  if (!thread_.joinable()) {
    absl::StatusOr<std::thread> thread = StartThread("hawser-snapshot", [this] { Run(); });
    if (!thread.ok()) return thread.status();
    thread_ = *std::move(thread);
  }
  waiting_.push_back({context.Defer(), reply, host});
  news_.Signal();
  return absl::OkStatus();
}

void Introspector::End() {
  std::vector<Waiting> waiting;
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    waiting.swap(waiting_);
    thread = std::move(thread_);
    news_.Signal();
  }
  for (Waiting& each : waiting) each.call.Finish(absl::UnavailableError("the server has ended"));
  if (thread.joinable()) thread.join();
}

// ---- The thread

void Introspector::Run() {
  setpriority(PRIO_PROCESS, 0, std::max(kNice, getpriority(PRIO_PROCESS, 0)));
  while (true) {
    std::vector<Waiting> waiting = TakeWaiting();
    if (waiting.empty()) return;
    if (snapshot_ == nullptr || environment_.NowNs() - taken_ns_ >= kAgeNs) {
      CallUser("the snapshot for", introspection::IntrospectionStub::kSnapshot.name, [this] {
        snapshot_ = nullptr;  // Also if there is no memory for the next one.
        TakeSnapshot();
      });
    }
    for (Waiting& each : waiting) Answer(std::move(each));
  }
}

std::vector<Introspector::Waiting> Introspector::TakeWaiting() {
  absl::MutexLock lock(&mutex_);
  while (waiting_.empty() && !closed_) {
    if (snapshot_ == nullptr) {
      news_.Wait(&mutex_);
    } else if (news_.WaitWithTimeout(&mutex_, absl::Nanoseconds(kAgeNs)) && waiting_.empty()) {
      snapshot_ = nullptr;  // That of a big server has megabytes.
    }
  }
  return std::exchange(waiting_, {});
}

void Introspector::TakeSnapshot() {
  taken_ns_ = environment_.NowNs();
  auto message = std::make_unique<capnp::MallocMessageBuilder>();
  const auto snapshot = message->initRoot<observe::wire::Snapshot>();
  source_(snapshot);
  CutSnapshot(snapshot, bytes_max_);
  snapshot_ = std::move(message);
}

void Introspector::Answer(Waiting waiting) const {
  DeferredCall& call = waiting.call;
  if (call.context().cancelled()) return call.Finish(absl::CancelledError("the caller has stopped waiting"));
  if (snapshot_ == nullptr) {
    return call.Finish(
        absl::ResourceExhaustedError("the server has no memory for a snapshot; its log says more"));
  }
  absl::Status copied;
  try {
    waiting.reply.setSnapshot(snapshot_->getRoot<observe::wire::Snapshot>().asReader());
  } catch (...) {  // There is no memory for the copy.
    copied = StatusOfHandlersException(call.context());
  }
  call.Finish(copied);
}

// ---- What fits

void CutSnapshot(observe::wire::Snapshot::Builder snapshot, uint64_t bytes_max) {
  if (BytesOf(snapshot) <= bytes_max) return;
  for (auto outgoing : snapshot.getOutgoing()) outgoing.getMethod().disownLatency();
  if (BytesOf(snapshot) <= bytes_max) return;
  snapshot.setConnectionsLeftOut(snapshot.getConnectionsLeftOut() + snapshot.getConnections().size());
  snapshot.disownConnections();
  if (BytesOf(snapshot) <= bytes_max) return;
  snapshot.setCallsLeftOut(snapshot.getCallsLeftOut() + snapshot.getCalls().size());
  snapshot.disownCalls();
  snapshot.disownSlowest();
  if (BytesOf(snapshot) <= bytes_max) return;
  snapshot.setChannelsLeftOut(snapshot.getChannelsLeftOut() + snapshot.getChannels().size());
  snapshot.disownChannels();
  if (BytesOf(snapshot) <= bytes_max) return;
  snapshot.setOutgoingLeftOut(snapshot.getOutgoingLeftOut() + snapshot.getOutgoing().size());
  snapshot.disownOutgoing();
  if (BytesOf(snapshot) <= bytes_max) return;
  for (auto method : snapshot.getMethods()) method.disownLatency();
  if (BytesOf(snapshot) <= bytes_max) return;
  snapshot.disownMethods();
}

}  // namespace hawser::internal
