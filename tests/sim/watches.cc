#include "hawser/tests/sim/watches.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/call.h"

namespace hawser::sim {

class Watches::Service final : public ledger::WatcherService {
 public:
  explicit Service(Watches& watches) : watches_(watches) {}
  absl::Status Changed(ServerContext& context, ledger::Watcher::ChangedParams::Reader request,
                       ledger::Watcher::ChangedResults::Builder) override {
    watches_.CheckServer(request.getWatch(), context.peer_identity());
    watches_.OnChanged(request.getWatch(), request.getRevision());
    return absl::OkStatus();
  }

 private:
  Watches& watches_;
};

std::unique_ptr<ledger::WatcherService> Watches::NewService() { return std::make_unique<Service>(*this); }

// ---- At the client

void Watches::Ask(ChannelRecord& channel) {
  Watch& watch = watches_.emplace_back();
  watch.id = watches_.size();
  watch.channel = &channel;
  watch.losses_before = channel.losses;
  world_.Note(channel.host, absl::StrCat("asks for watch ", watch.id));
  auto call = ledger::LedgerStub(channel.channel).Watch();
  call.request().setWatch(watch.id);
  call.Send().Then([](const absl::StatusOr<Reply<ledger::Ledger::WatchResults>>&) {});
}

void Watches::CheckServer(uint64_t id, const PeerIdentity& seen) const {
  const std::string broken = watches_[id - 1].channel->CheckServer(seen);
  if (!broken.empty()) world_.Broken(absl::StrCat("watch ", id, " is called: ", broken));
}

void Watches::OnChanged(uint64_t id, uint64_t revision) {
  Watch& watch = watches_[id - 1];
  const uint64_t expected = watch.last == 0 ? watch.first + 1 : watch.last + 1;
  if (revision != expected) {
    world_.Broken(absl::StrCat("watch ", id, " gets revision ", revision, " instead of ", expected));
  }
  watch.last = revision;
}

// ---- At the server

void Watches::OnServerUp(uint64_t life) {
  server_life_ = life;
  revision_ = 0;
}

void Watches::OnServerDown() {
  for (Watch& watch : watches_) {
    if (watch.server_life == server_life_) End(watch);
  }
  server_life_ = 0;
}

absl::Status Watches::Serve(ServerContext& context, uint64_t id, uint64_t* revision) {
  Watch& watch = watches_[id - 1];
  const std::shared_ptr<Channel> peer = context.peer();
  if (peer == nullptr || server_life_ == 0) return absl::UnavailableError("the client is going");
  std::string broken = watch.channel->CheckClient(context.peer_identity());
  // While it is not connected, it has no peer.
  if (broken.empty() && peer->state() == ChannelState::kReady)
    broken = watch.channel->CheckClient(peer->peer_identity());
  if (!broken.empty()) world_.Broken(absl::StrCat("watch ", id, ": ", broken));
  world_.Note(World::kServer, absl::StrCat("serves watch ", id, " from revision ", revision_));
  watch.peer = peer;
  watch.server_life = server_life_;
  watch.first = watch.sent = *revision = revision_;
  watch.peer->OnClosed([this, &watch] { End(watch); });
  return absl::OkStatus();
}

void Watches::Change() {
  if (server_life_ == 0) return;
  ++revision_;
  for (Watch& watch : watches_) {
    if (watch.server_life == server_life_) Push(watch);
  }
}

// Pushes one revision after the other.
void Watches::Push(Watch& watch) {
  if (watch.over || watch.sending || server_life_ == 0 || watch.server_life != server_life_ ||
      watch.sent == revision_) {
    return;
  }
  watch.sending = true;
  auto call = ledger::WatcherStub(watch.peer).Changed();
  call.request().setWatch(watch.id);
  call.request().setRevision(++watch.sent);
  call.Send().Then([this, &watch](const absl::StatusOr<Reply<ledger::Watcher::ChangedResults>>& reply) {
    watch.sending = false;
    if (reply.ok()) return Push(watch);
    // After any error the client must learn that it has missed a revision.
    if (watch.peer != nullptr) watch.peer->Close();
    End(watch);
  });
}

void Watches::End(Watch& watch) {
  if (watch.over) return;
  watch.over = true;
  // Releases the peer later, because this may be the callback of a call on it.
  world_.At(world_.now_ns(), [peer = std::exchange(watch.peer, nullptr)] {});
}

// ---- Rules

bool Watches::WasTold(const Watch& watch) {
  return watch.channel->channel == nullptr || watch.channel->losses != watch.losses_before;
}

void Watches::Check() const {
  for (const Watch& watch : watches_) {
    if (watch.server_life == 0 || WasTold(watch)) continue;
    if (watch.over || watch.server_life != server_life_) {
      world_.Broken(absl::StrCat("watch ", watch.id, " is over, and its client does not know"));
    } else if (watch.last != revision_ && watch.first != revision_) {
      world_.Broken(absl::StrCat("watch ", watch.id, " is at revision ", watch.last, " of ", revision_));
    }
  }
}

}  // namespace hawser::sim
