#include "hawser/tests/sim/one_sided_work.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "capnp/message.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/transport/runtime.h"

namespace hawser::sim {
namespace {

using Kind = OneSidedAccess::Kind;
using Wrong = OneSidedAccess::Wrong;

constexpr uint64_t kSeed = 0x1de5;
constexpr size_t kTicketsPerHost = 6;
constexpr int64_t kDefaultTimeoutNs = 10 * kSecond;
// After its deadline an operation ends once its NIC has flushed it.
constexpr int64_t kFlushSlackNs = 500 * kMs;
// Longer than any NIC here takes to flush.
constexpr int64_t kWatchAfterNs = 30 * kMs;

constexpr uint8_t kRead = static_cast<uint8_t>(hawser::Access::kRead);
constexpr uint8_t kWrite = static_cast<uint8_t>(hawser::Access::kWrite);
constexpr uint8_t kAtomic = static_cast<uint8_t>(hawser::Access::kAtomic);

uint8_t RightFor(Kind kind) { return kind == Kind::kRead ? kRead : kind == Kind::kWrite ? kWrite : kAtomic; }

// What the fabrics of the simulation can do: atomics of the NIC, or, where there is none, with the processor.
std::string CheckCapabilities(const RemoteMemory& remote) {
  const RemoteCapabilities known = remote.capabilities();
  const RemoteAtomics expected = known.by_nic ? RemoteAtomics::kNic : RemoteAtomics::kWithProcessor;
  if (known.is_known && known.atomics == expected && known.read_depth > 0) return "";
  return absl::StrCat("after an operation its channel says that ",
                      known.is_known ? "other atomics are possible" : "it knows nothing");
}

}  // namespace

OneSidedWork::OneSidedWork(World& world, uint64_t seed,
                           std::function<void(const std::function<void()>&)> wait)
    : world_(world), dice_(seed ^ kSeed), owner_(world, dice_, std::move(wait)) {}

void OneSidedWork::Step(const Processes& processes) {
  const int64_t what = dice_.Between(0, 99);
  if (what < 60) return Operate();
  if (what < 76) {
    if (processes.channels.empty()) return;
    return Ask(*AnyOf(processes.channels), processes.channels);
  }
  if (what < 82) return CancelSomething();
  if (what < 84) return DropSomeTicket();
  if (processes.server == nullptr) return;
  if (what < 91) return owner_.Write();
  if (what < 96) return owner_.Share(*processes.server, /*must=*/false);
  if (processes.may_wait) Revoke();
}

// With operations in flight, now and then.
void OneSidedWork::Revoke() {
  const std::vector<OneSidedRegion*> all = owner_.Regions();
  if (all.empty()) return;
  OneSidedRegion& region = *AnyOf(all);
  if (dice_.Chance(0.5)) {
    for (OneSidedTicket* ticket : Tickets()) {
      if (ticket->region == &region) OperateOn(*ticket);
    }
  }
  owner_.Revoke(region);
}

// ---- Tickets

std::vector<OneSidedTicket*> OneSidedWork::Tickets() {
  std::vector<OneSidedTicket*> all;
  for (OneSidedTicket& ticket : tickets_) {
    if (!ticket.remote.has_value() || world_.stalled(ticket.channel->host)) continue;
    // Few operations of one that is void by now are enough.
    if (!ticket.has_session() && dice_.Chance(0.7)) {
      ticket.remote.reset();
    } else {
      all.push_back(&ticket);
    }
  }
  return all;
}

void OneSidedWork::Ask(ChannelRecord& channel, const std::vector<ChannelRecord*>& all) {
  const std::vector<OneSidedRegion*> regions = owner_.Regions();
  const auto has = std::count_if(tickets_.begin(), tickets_.end(), [&](const OneSidedTicket& ticket) {
    return ticket.remote.has_value() && ticket.channel->host == channel.host;
  });
  if (regions.empty() || !IsAble(channel) || (!good_day_ && static_cast<size_t>(has) >= kTicketsPerHost)) {
    return;
  }
  OneSidedTicket& ticket = tickets_.emplace_back();
  ticket.channel = &channel;
  ticket.region = good_day_ ? regions.back() : AnyOf(regions);
  ticket.losses = channel.losses;
  ticket.access = kRead | kWrite | kAtomic;
  ticket.counted = dice_.Chance(0.5);
  ticket.length = OneSidedRegion::kBytes;
  if (!good_day_ && dice_.Chance(0.7)) {
    ticket.access = static_cast<uint8_t>(dice_.Between(1, 7));
    ticket.offset = static_cast<uint64_t>(dice_.Between(0, OneSidedRegion::kBytes - 64));
    if ((ticket.access & kAtomic) != 0) ticket.offset = dice_.Chance(0.7) ? 0 : ticket.offset & ~uint64_t{7};
    ticket.length =
        static_cast<uint64_t>(dice_.Between(1, static_cast<int64_t>(OneSidedRegion::kBytes - ticket.offset)));
    ticket.counted = ticket.counted && (ticket.access & kWrite) != 0;
    // One that does not exist.
    if (dice_.Chance(0.05)) ticket.length = OneSidedRegion::kBytes - ticket.offset + 1;
  }
  ChannelRecord* shown_on = &channel;
  if (!good_day_ && dice_.Chance(0.05)) shown_on = AnyOf(all);
  if (!IsAble(*shown_on)) return;
  ticket.honest = shown_on == &channel;
  auto call = ledger::LedgerStub(channel.channel).Grant();
  call.request().setMemory(ticket.region->id());
  call.request().setOffset(ticket.offset);
  call.request().setLength(ticket.length);
  call.request().setAccess(ticket.access);
  call.request().setCounted(ticket.counted);
  call.Send().Then([this, &ticket, shown = std::weak_ptr<Channel>(shown_on->channel),
                    shown_on](const absl::StatusOr<Reply<ledger::Ledger::GrantResults>>& reply) {
    if (good_day_ && !reply.ok()) {
      world_.Broken(absl::StrCat("on a good day a grant ended with ", reply.status().ToString()));
    }
    std::shared_ptr<Channel> on = shown.lock();
    // Not on a host that has lost its power, or on a channel that was closed meanwhile.
    if (!reply.ok() || on == nullptr || shown_on->channel != on) return;
    ticket.channel = shown_on;
    OnTicket(ticket, std::move(on), (*reply)->getTicket());
  });
}

void OneSidedWork::OnTicket(OneSidedTicket& ticket, std::shared_ptr<Channel> channel,
                            memory::Ticket::Reader reader) {
  if (ticket.honest && !good_day_ && dice_.Chance(0.05)) {
    capnp::MallocMessageBuilder message;
    message.setRoot(reader);
    auto forged = message.getRoot<memory::Ticket>();
    switch (dice_.Between(0, 2)) {
      case 0:
        forged.setKeyLow(forged.getKeyLow() ^ uint64_t{1} << dice_.Between(0, 63));
        break;
      case 1:
        forged.setOffset(forged.getOffset() + 1);
        break;
      default:
        // Without that it is not for WRITEs that are counted, either.
        forged.setAccess(ticket.access ^ kWrite);
    }
    if (forged.getAccess() == 0) return;
    ticket.honest = false;
    ticket.access = forged.getAccess() & (kRead | kWrite | kAtomic);
    ticket.counted = false;
    ticket.remote.emplace(std::move(channel), forged.asReader());
    return;
  }
  ticket.remote.emplace(std::move(channel), reader);
  // On a good day a lane may have to find out first that its owner is not the one that it was.
  if (good_day_) {
    Access& access = accesses_.emplace_back();
    access.ticket = &ticket;
    access.ranges = {{ticket.offset, 8}};
    Begin(access);
  }
}

void OneSidedWork::DropSomeTicket() {
  const std::vector<OneSidedTicket*> all = Tickets();
  if (!all.empty()) AnyOf(all)->remote.reset();
}

// ---- Operations

void OneSidedWork::Operate() {
  const std::vector<OneSidedTicket*> all = Tickets();
  if (!all.empty()) OperateOn(*AnyOf(all));
}

// One operation, or some at once.
void OneSidedWork::OperateOn(OneSidedTicket& ticket) {
  for (int64_t count = dice_.Chance(0.7) ? 1 : dice_.Between(2, 8); count > 0; --count) {
    Access access;
    access.ticket = &ticket;
    if (Choose(access)) Begin(accesses_.emplace_back(std::move(access)));
  }
}

bool OneSidedWork::Choose(Access& access) {
  const OneSidedTicket& ticket = *access.ticket;
  const int64_t what = dice_.Between(0, 9);
  access.kind = what < 4   ? Kind::kRead
                : what < 7 ? Kind::kWrite
                : what < 9 ? Kind::kFetchAdd
                           : Kind::kCompareSwap;
  if ((ticket.access & RightFor(access.kind)) == 0) {
    if (dice_.Chance(0.8)) return false;
    access.wrong = Wrong::kRight;
  }
  uint64_t from = ticket.offset, to = std::min<uint64_t>(from + ticket.length, OneSidedRegion::kBytes);
  if (access.kind == Kind::kWrite) from = std::max<uint64_t>(from, OneSidedRegion::kDataFrom);
  if (access.kind == Kind::kFetchAdd) to = std::min<uint64_t>(to, OneSidedRegion::kAddBytes);
  if (access.kind == Kind::kCompareSwap) {
    from = std::max<uint64_t>(from, OneSidedRegion::kAddBytes);
    to = std::min<uint64_t>(to, OneSidedRegion::kDataFrom);
  }
  if (access.is_atomic()) from = (from + 7) & ~uint64_t{7};
  if (from >= to || (access.is_atomic() && to - from < 8)) return false;
  ChooseRanges(access, from, to);
  if (access.kind == Kind::kCompareSwap) {
    // What another one has written, or what was there at first.
    const bool known = dice_.Chance(0.7);
    access.compare = known ? access.ticket->last_word : static_cast<uint64_t>(dice_.Between(0, 9));
  }
  if (access.wrong == Wrong::kNothing && dice_.Chance(0.03)) {
    access.wrong = Wrong::kRange;
    access.ranges.back().offset = ticket.offset + ticket.length - access.ranges.back().length + 1;
  } else if (access.wrong == Wrong::kNothing && access.is_atomic() && dice_.Chance(0.03) &&
             access.ranges.front().offset + 9 <= ticket.offset + ticket.length) {
    access.wrong = Wrong::kAlignment;
    access.ranges.front().offset += 1;
  }
  return true;
}

void OneSidedWork::ChooseRanges(Access& access, uint64_t from, uint64_t to) {
  const auto any = [&](uint64_t low, uint64_t high) {
    return static_cast<uint64_t>(dice_.Between(static_cast<int64_t>(low), static_cast<int64_t>(high)));
  };
  if (access.is_atomic()) {
    access.ranges = {{from + 8 * any(0, (to - from) / 8 - 1), 8}};
    return;
  }
  const int64_t how = access.kind == Kind::kRead ? dice_.Between(0, 9) : 0;
  // One, many, or a stride.
  const uint64_t count = how < 6 ? 1 : any(1, dice_.Chance(0.2) ? 200 : 12);
  const uint64_t bytes_max = count == 1 ? to - from : std::min<uint64_t>(64, to - from);
  const auto begin = [&](uint64_t length) {
    const uint64_t offset = any(from, to - length);
    const uint64_t aligned = (offset + 7) & ~uint64_t{7};
    return dice_.Chance(0.7) && aligned + length <= to ? aligned : offset;
  };
  const uint64_t length = any(1, bytes_max);
  if (how >= 8) {
    const uint64_t offset = begin(length);
    const uint64_t stride = any(0, 32);
    for (uint64_t i = 0; i < count && offset + i * stride + length <= to; ++i) {
      access.ranges.push_back({offset + i * stride, length});
    }
    access.stride = stride;
    return;
  }
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t some = i == 0 ? length : any(1, bytes_max);
    access.ranges.push_back({begin(some), some});
  }
}

void OneSidedWork::Begin(Access& access) {
  OneSidedTicket& ticket = *access.ticket;
  access.id = accesses_.size();
  access.host = ticket.channel->host;
  access.demanded = access.demanded && good_day_;
  RemoteOptions options;
  int64_t timeout_ns = kDefaultTimeoutNs;
  if (!good_day_ && dice_.Chance(0.5)) {
    timeout_ns = dice_.Between(0, dice_.Chance(0.7) ? 3 * kMs : 2 * kSecond);
    options.timeout = absl::Nanoseconds(timeout_ns);
  }
  access.deadline_ns = world_.now_ns() + timeout_ns;
  const size_t bytes = access.bytes();
  absl::StatusOr<Buffer> buffer;
  const std::shared_ptr<Channel>& channel = ticket.channel->channel;
  if (channel != nullptr && dice_.Chance(0.5)) buffer = channel->AllocateBuffer(bytes);
  if (buffer.ok()) {
    access.registered = *std::move(buffer);
    access.local = {access.registered.data(), bytes};
  } else {
    access.plain.assign(bytes, 0);
    access.local = absl::MakeSpan(access.plain);
    if (channel != nullptr && dice_.Chance(0.4)) RegisterOwn(access, *channel);
  }
  for (uint8_t& byte : access.local) byte = static_cast<uint8_t>(dice_.Next() >> 32);
  if (access.kind == Kind::kWrite) access.written.assign(access.local.begin(), access.local.end());
  world_.Note(access.host,
              absl::StrCat("begins ", access.Name(), ", ", bytes, " bytes of memory ", ticket.region->id()));
  open_.push_back(&access);
  ticket.region->Begin(access);
  RemoteOperation operation = Operation(access, options);
  // One that a NIC may touch is waited for when it is dropped.
  if (!good_day_ && !access.plain.empty() && access.own_region == nullptr && dice_.Chance(0.15)) {
    access.dropped = true;
    access.pending.emplace(std::move(operation));
    const int64_t keeps_ns = dice_.Between(0, dice_.Chance(0.5) ? 50'000 : 3 * kMs);
    return world_.AtOn(access.host, world_.now_ns() + keeps_ns, [this, &access] { Drop(access); });
  }
  operation.Then([this, &access](const absl::Status& status) { OnEnd(access, status); });
  if (access.ends == 0) access.pending.emplace(std::move(operation));
}

void OneSidedWork::RegisterOwn(Access& access, const Channel& channel) {
  transport::UserRegions& regions = channel.core()->runtime()->user_regions();
  const absl::StatusOr<transport::UserRegion*> region =
      regions.Register({.address = access.plain.data(), .length_bytes = access.plain.size()});
  if (!region.ok()) return;  // The host may pin no more.
  access.own_regions = &regions;
  access.own_region = *region;
}

RemoteOperation OneSidedWork::Operation(Access& access, const RemoteOptions& options) {
  RemoteMemory& remote = *access.ticket->remote;
  const uint64_t base = access.ticket->offset;
  const uint64_t offset = access.ranges.front().offset - base;
  switch (access.kind) {
    case Kind::kWrite:
      return remote.Write(offset, access.local, options);
    case Kind::kCompareSwap:
      return remote.CompareAndSwap(offset, access.compare, access.id,
                                   *reinterpret_cast<uint64_t*>(access.local.data()), options);
    case Kind::kFetchAdd:
      return remote.FetchAdd(offset, access.id, *reinterpret_cast<uint64_t*>(access.local.data()), options);
    case Kind::kRead:
      break;
  }
  if (access.ranges.size() == 1) return remote.Read(offset, access.local, options);
  if (access.stride.has_value() && access.wrong == Wrong::kNothing) {
    return remote.Read(
        RemoteStride{offset, access.ranges.front().length, *access.stride, access.ranges.size()},
        access.local, options);
  }
  std::vector<RemoteRange> ranges;
  for (const Access::Range& range : access.ranges) ranges.push_back({range.offset - base, range.length});
  return remote.Read(ranges, access.local, options);
}

void OneSidedWork::OnEnd(Access& access, const absl::Status& status) {
  world_.Note(access.host, absl::StrCat(access.Name(), " has ended: ", status.ToString()));
  ++access.ends;
  access.ended_ns = world_.now_ns();
  if (access.abandoned) {
    Check(access.ReleaseOwnAndMark());
    return;
  }
  OneSidedRegion& region = *access.ticket->region;
  Check(access.CheckStatus(status, owner_.life(), world_.now_ns()));
  if (status.ok() && access.kind == Kind::kRead) Check(region.CheckRead(access));
  Check(region.End(access, access.Happened(status)));
  access.was_counted = access.WasCounted(status);
  if (status.ok() && access.ticket->remote.has_value()) Check(CheckCapabilities(*access.ticket->remote));
  if (status.ok() && access.kind == Kind::kCompareSwap) {
    std::memcpy(&access.ticket->last_word, access.local.data(), sizeof(uint64_t));
    if (access.landed_alone) access.ticket->last_word = access.id;
  }
  Check(access.ReleaseOwnAndMark());
}

void OneSidedWork::CancelSomething() {
  std::vector<Access*> all;
  for (Access* access : open_) {
    if (access->pending.has_value() && access->ends == 0 && !access->dropped && !world_.stalled(access->host))
      all.push_back(access);
  }
  if (all.empty()) return;
  Access& access = *AnyOf(all);
  world_.Note(access.host, absl::StrCat("cancels ", access.Name()));
  access.cancelled = true;
  access.pending->Cancel();
}

// Its memory is the client's at once.
void OneSidedWork::Drop(Access& access) {
  world_.Note(access.host, absl::StrCat("drops ", access.Name()));
  access.pending.reset();
  Check(access.ReleaseOwnAndMark());
}

void OneSidedWork::OnPowerOff(int host) {
  for (Access* access : open_) {
    if (access->host != host || access->ends > 0) continue;
    access->abandoned = true;
    access->own_region = nullptr;  // It ends with the runtime.
    access->pending.reset();
  }
  for (OneSidedTicket& ticket : tickets_) {
    if (ticket.channel->host == host) ticket.remote.reset();
  }
}

void OneSidedWork::CheckTurn() {
  owner_.CheckTurn();
  for (size_t i = 0; i < open_.size();) {
    Access& access = *open_[i];
    const int64_t now_ns = world_.now_ns();
    if (access.ends > 0) access.pending.reset();
    if (access.ends == 0 && !access.dropped && !access.abandoned &&
        now_ns > std::max(access.deadline_ns, world_.excused_until_ns(access.host)) + kFlushSlackNs) {
      world_.Broken(absl::StrCat(access.Name(), " lives on after its deadline"));
    }
    const bool is_over = access.dropped ? !access.pending.has_value()
                                        : access.ends > 0 && now_ns >= access.ended_ns + kWatchAfterNs;
    if (!is_over) {
      ++i;
      continue;
    }
    if (!access.dropped) {  // That is watched until the end of the world.
      Check(access.CheckMemory());
      access.ReleaseMemory();
    }
    open_[i] = open_.back();
    open_.pop_back();
  }
}

// ---- The end

void OneSidedWork::AskOnGoodDay(const Processes& processes) {
  good_day_ = true;
  owner_.DestroyAll();
  owner_.Share(*processes.server, /*must=*/true);
  for (ChannelRecord* channel : processes.channels) {
    if (IsAble(*channel)) unreached_.push_back(channel);
    Ask(*channel, processes.channels);
  }
}

void OneSidedWork::ReachOnGoodDay() {
  for (OneSidedTicket* ticket : Tickets()) {
    if (ticket->region->refused) continue;
    for (int i = 0; i < 6; ++i) {
      Access access;
      access.ticket = ticket;
      access.demanded = true;
      if (!Choose(access) || access.wrong != Wrong::kNothing) continue;
      Begin(accesses_.emplace_back(std::move(access)));
      std::erase(unreached_, ticket->channel);
    }
  }
}

void OneSidedWork::CheckGoodDay() {
  for (const ChannelRecord* channel : unreached_) {
    world_.Broken(absl::StrCat("on a good day a channel of host ", channel->host, " has reached no memory"));
  }
  for (const Access* access : open_) {
    if (access->demanded && access->ends == 0) {
      world_.Broken(absl::StrCat("on a good day ", access->Name(), " has no end"));
    }
  }
}

void OneSidedWork::DropTickets() {
  for (OneSidedTicket& ticket : tickets_) ticket.remote.reset();
}

void OneSidedWork::CheckEnd() {
  for (Access& access : accesses_) {
    if (access.ends != (access.dropped ? 0 : 1) && !access.abandoned) {
      world_.Broken(absl::StrCat(access.Name(), " ended ", access.ends, " times"));
    }
    if (access.dropped) Check(access.CheckMemory());
    access.ReleaseMemory();
  }
  open_.clear();
  std::map<OneSidedRegion*, std::pair<uint64_t, uint64_t>> counted;  // For sure, and perhaps.
  for (const Access& access : accesses_) {
    auto& [sure, perhaps] = counted[access.ticket->region];
    if (!access.was_counted.has_value()) {
      perhaps += access.is_counted() ? 1 : 0;
    } else if (*access.was_counted) {
      ++sure;
    }
  }
  for (const auto& [region, counts] : counted) {
    Check(region->CheckFinalCount(counts.first, counts.second));
  }
  owner_.CheckEnd();
}

void OneSidedWork::Dismantle() {
  DropTickets();
  for (Access& access : accesses_) access.pending.reset();
  owner_.Dismantle();
  for (Access& access : accesses_) access.ReleaseMemory();
}

}  // namespace hawser::sim
