#include "hawser/rpc/services/health_board.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/base/check.h"
#include "hawser/base/thread.h"
#include "hawser/rpc/call.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {
namespace {

constexpr size_t kWatchesOfClientMax = 64;
constexpr size_t kWatchesMax = 4096;
constexpr size_t kWatchesOfHostMax = kWatchesMax / 4;

// Clients that one call looks at for those that are gone, when there is no room.
constexpr size_t kLooksMax = 64;

// A client whose handler takes longer is notified again.
constexpr absl::Duration kNotifyTimeout = absl::Seconds(10);
// The time between attempts to notify a client that could not be notified.
constexpr absl::Duration kNotifyAgainAfter = absl::Seconds(1);
// Between those of HealthBoard::kAgainAtOnce clients and of the next ones: all watches that there may be have
// their attempt in that second.
constexpr absl::Duration kNextAfter = absl::Microseconds(1'000'000 * HealthBoard::kAgainAtOnce / kWatchesMax);
// How long Close() waits for watchers that are stopped, or far away.
constexpr absl::Duration kCloseTimeout = absl::Milliseconds(500);

PeerHost HostOf(const Channel& client) {
  const absl::StatusOr<transport::Uri> uri = transport::ParseUri(client.peer_address());
  const absl::StatusOr<SocketAddress> address =
      uri.ok() ? transport::ParseNumericHost(uri->host) : absl::StatusOr<SocketAddress>(uri.status());
  return address.ok() ? PeerHost(*address) : PeerHost();
}

absl::string_view FromKj(kj::StringPtr text) { return {text.cStr(), text.size()}; }

}  // namespace

HealthBoard::~HealthBoard() = default;

absl::Status HealthBoard::Check(ServerContext&, health::Health::CheckParams::Reader request,
                                health::Health::CheckResults::Builder reply) {
  const absl::string_view service = FromKj(request.getService());
  absl::MutexLock lock(&mutex_);
  const Status status = StatusOf(service);
  if (status == Status::SERVICE_UNKNOWN) {
    return absl::NotFoundError(absl::StrCat("the server knows no service \"", service.substr(0, 256),
                                            "\"; the empty name is the server as a whole"));
  }
  reply.setStatus(status);
  return absl::OkStatus();
}

absl::Status HealthBoard::Watch(ServerContext& context, health::Health::WatchParams::Reader request,
                                health::Health::WatchResults::Builder) {
  return AddWatch(context.peer(), FromKj(request.getService()));
}

uint64_t HealthBoard::interface_id() const { return capnp::typeId<health::Health>(); }

void HealthBoard::Open(const std::vector<std::string>& services) {
  absl::MutexLock lock(&mutex_);
  serves_.try_emplace("", true);
  for (const std::string& service : services) serves_.try_emplace(service, true);
}

void HealthBoard::SetHealth(absl::string_view service, bool serves) {
  Watches due;
  {
    absl::MutexLock lock(&mutex_);
    if (closed_) return;
    serves_[std::string(service)] = serves;
    due = Due();
  }
  Notify(due);
}

void HealthBoard::Close(absl::Time deadline) {
  Watches due;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    due = Due();
  }
  Notify(due);
  deadline = std::min(deadline, environment_.Now() + kCloseTimeout);
  std::thread again;
  {
    absl::MutexLock lock(&mutex_);
    environment_.Await(
        mutex_, notified_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return notifying_ == 0; }, deadline);
    failed_or_closed_.SignalAll();
    again = std::move(again_);
  }
  if (again.joinable()) again.join();
}

void HealthBoard::NotifyAgain() {
  int64_t next_ns = 0;
  while (true) {
    Watches due;
    {
      absl::MutexLock lock(&mutex_);
      const bool none = failed_.empty();
      environment_.Await(
          mutex_, failed_or_closed_,
          [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return closed_ || (none && !failed_.empty()); },
          none ? absl::InfiniteFuture() : TimeOf(std::max(next_ns, failed_.front().again_ns)));
      if (closed_) return;
      due = DueAgain();
      if (!due.empty()) next_ns = environment_.NowNs() + absl::ToInt64Nanoseconds(kNextAfter);
    }
    Notify(due);
  }
}

absl::Time HealthBoard::TimeOf(int64_t when_ns) {
  return environment_.Now() + absl::Nanoseconds(when_ns - environment_.NowNs());
}

HealthBoard::Watches HealthBoard::DueAgain() {
  Watches due;
  const int64_t now_ns = environment_.NowNs();
  while (!failed_.empty() && failed_.front().again_ns <= now_ns && due.size() < kAgainAtOnce) {
    const std::shared_ptr<Watched> watch = failed_.front().watch.lock();
    failed_.pop_front();
    if (watch == nullptr) continue;  // Its client is gone.
    watch->failed = false;
    if (MarkDue(*watch)) due.push_back(watch);
  }
  return due;
}

HealthBoard::Status HealthBoard::StatusOf(absl::string_view service) const {
  const auto found = serves_.find(service);
  if (found == serves_.end()) return Status::SERVICE_UNKNOWN;
  return found->second && !closed_ ? Status::SERVING : Status::NOT_SERVING;
}

absl::Status HealthBoard::AddWatch(const std::shared_ptr<Channel>& client, absl::string_view service) {
  if (client == nullptr) {
    return absl::FailedPreconditionError(
        "the client offers no services: it has to give a HealthWatcher to ChannelOptions::services, which "
        "the server calls");
  }
  // Its text is kept, so it is bounded.
  constexpr size_t kNameMax = 1024;
  if (service.size() > kNameMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name of a service has ", service.size(), " bytes, ", kNameMax, " at most"));
  }
  auto watch = std::make_shared<Watched>();
  {
    absl::MutexLock lock(&mutex_);
    if (watches_ >= kWatchesMax || WatchesOf(HostOf(*client)) >= kWatchesOfHostMax) DropSomeGone();
    Client& of_client = clients_[client.get()];
    if (of_client.channel.lock() != client) {  // New, or another one was at this address.
      Count(of_client.host, -static_cast<ptrdiff_t>(of_client.watches.size()));
      of_client = {client, HostOf(*client), {}};
    }
    const auto same =
        std::find_if(of_client.watches.begin(), of_client.watches.end(),
                     [&](const std::shared_ptr<Watched>& each) { return each->service == service; });
    if (same != of_client.watches.end()) {
      watch = *same;
      watch->was_notified = false;  // Sends the present status again.
    } else {
      if (of_client.watches.size() >= kWatchesOfClientMax) {
        return absl::ResourceExhaustedError(
            absl::StrCat("this connection watches ", of_client.watches.size(), " services already"));
      }
      const size_t of_host = WatchesOf(of_client.host);
      if (watches_ >= kWatchesMax || of_host >= kWatchesOfHostMax) {
        if (of_client.watches.empty()) clients_.erase(client.get());
        return absl::ResourceExhaustedError(
            absl::StrCat("the server has ", watches_, " watches already, ", of_host, " of this host"));
      }
      watch->service = std::string(service);
      watch->client = client;
      watch->key = client.get();
      of_client.watches.push_back(watch);
      Count(of_client.host, 1);
    }
    if (!MarkDue(*watch)) return absl::OkStatus();
  }
  Notify({watch});
  return absl::OkStatus();
}

bool HealthBoard::MarkDue(Watched& watch) {
  const Status status = StatusOf(watch.service);
  if (watch.is_being_notified || (watch.was_notified && watch.sent == status)) return false;
  watch.sent = status;
  watch.was_notified = watch.is_being_notified = true;
  ++notifying_;
  return true;
}

HealthBoard::Watches HealthBoard::Due() {
  DropGone();
  Watches due;
  for (auto& [channel, client] : clients_) {
    for (const std::shared_ptr<Watched>& watch : client.watches) {
      if (MarkDue(*watch)) due.push_back(watch);
    }
  }
  return due;
}

void HealthBoard::DropGone() {
  for (auto each = clients_.begin(); each != clients_.end();) each = DropIfGone(each);
}

void HealthBoard::DropSomeGone() {
  auto each = clients_.lower_bound(next_look_);
  for (size_t looks = std::min(kLooksMax, clients_.size()); looks > 0; --looks) {
    if (each == clients_.end()) each = clients_.begin();
    each = DropIfGone(each);
  }
  next_look_ = each == clients_.end() ? nullptr : each->first;
}

// Returns the next one.
HealthBoard::Clients::iterator HealthBoard::DropIfGone(Clients::iterator client) {
  if (!client->second.channel.expired()) return std::next(client);
  Count(client->second.host, -static_cast<ptrdiff_t>(client->second.watches.size()));
  return clients_.erase(client);
}

// Without the lock: Send() may run interceptors, and the callback runs here in a child after fork().
void HealthBoard::Notify(const Watches& due) {
  for (const std::shared_ptr<Watched>& watch : due) {
    const std::shared_ptr<Channel> client = watch->client.lock();
    if (client == nullptr) {
      OnNotified(watch, absl::UnavailableError("the client is gone"));
      continue;
    }
    auto call = health::HealthWatcherStub(client).Changed({.timeout = kNotifyTimeout});
    call.request().setService({watch->service.c_str(), watch->service.size()});
    {
      absl::MutexLock lock(&mutex_);
      call.request().setStatus(watch->sent);
    }
    call.Send().Then(
        [self = shared_from_this(), watch](auto reply) { self->OnNotified(watch, reply.status()); });
  }
}

void HealthBoard::OnNotified(const std::shared_ptr<Watched>& watch, const absl::Status& status) {
  bool again = false;
  {
    absl::MutexLock lock(&mutex_);
    watch->is_being_notified = false;
    HAWSER_SUBTRACT(notifying_, 1);
    if (notifying_ == 0) notified_.SignalAll();
    const std::shared_ptr<Channel> client = watch->client.lock();
    if (status.ok()) {
      again = MarkDue(*watch);
    } else if (client == nullptr || client->state() == ChannelState::kClosed ||
               absl::IsUnimplemented(status)) {
      Drop(watch);
    } else {
      watch->was_notified = false;
      if (!closed_ && !again_.joinable()) {
        absl::StatusOr<std::thread> thread = StartThread("hawser-health", [this] { NotifyAgain(); });
        if (thread.ok()) again_ = *std::move(thread);
      }
      // Without a thread the client is notified at the next change.
      if (again_.joinable() && !std::exchange(watch->failed, true)) {
        failed_.push_back({watch, environment_.NowNs() + absl::ToInt64Nanoseconds(kNotifyAgainAfter)});
        failed_or_closed_.SignalAll();
      }
    }
  }
  if (again) Notify({watch});
}

void HealthBoard::Drop(const std::shared_ptr<Watched>& watch) {
  const auto client = clients_.find(watch->key);
  if (client == clients_.end()) return;
  std::vector<std::shared_ptr<Watched>>& watches = client->second.watches;
  const auto found = std::find(watches.begin(), watches.end(), watch);
  if (found == watches.end()) return;  // The watch of one that was at this address before.
  watches.erase(found);
  Count(client->second.host, -1);
  if (watches.empty()) clients_.erase(client);
}

size_t HealthBoard::WatchesOf(const PeerHost& host) const {
  const auto found = by_host_.find(host);
  return found == by_host_.end() ? 0 : found->second;
}

void HealthBoard::Count(const PeerHost& host, ptrdiff_t count) {
  if (count == 0) return;
  const auto found = by_host_.try_emplace(host).first;
  HAWSER_CHECK(static_cast<ptrdiff_t>(found->second) + count >= 0, found->second, " watches of a host and ",
               count, " more");
  watches_ += static_cast<size_t>(count);
  found->second += static_cast<size_t>(count);
  if (found->second == 0) by_host_.erase(found);
}

}  // namespace hawser::internal
