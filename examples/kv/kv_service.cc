#include "examples/kv/kv_service.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "examples/worker.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/first_of.h"

namespace kv {
namespace {

// The most keys of a page of list(). A page with values is small enough to build at once. It has few
// segments: each value that is sent from its own memory is one, and a message has at most some hundred
// segments.
constexpr size_t kKeysMax = 1000;
constexpr size_t kKeysWithValuesMax = 100;
// Bounds the answer to a short request, which may have many small keys.
constexpr uint64_t kPageKeyBytesMax = 64 << 10;
constexpr uint64_t kPageValueBytesMax = 1 << 20;

// Smaller values are copied into a reply. In a page with many values only a larger value is worth a segment
// of its own.
constexpr size_t kReferredMin = 2 << 10;
constexpr size_t kReferredInPageMin = 16 << 10;

// If a watcher has not answered for this time, the server repeats the push, because the answer may be lost. A
// stopped watcher costs one message a minute; if its machine is gone, keepalive ends the connection long
// before.
constexpr absl::Duration kPushTimeout = absl::Minutes(1);

// Between pushes and further ones: enough for these to be started in another turn of the poller.
constexpr absl::Duration kPause = absl::Microseconds(1);

absl::string_view View(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

absl::Status CheckKey(absl::string_view key) {
  if (key.empty()) return absl::InvalidArgumentError("the key is empty");
  if (key.size() > KEY_BYTES_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key has ", key.size(), " bytes; it may have ", KEY_BYTES_MAX));
  }
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (std::any_of(key.begin(), key.end(), is_control)) {
    return absl::InvalidArgumentError("the key has a control character (a tab, a line break, ...)");
  }
  return absl::OkStatus();
}

// Checks the parts of keys that list() and watch() compare with keys, or keep.
absl::Status CheckPartOfKey(absl::string_view what, absl::string_view text) {
  if (text.size() <= KEY_BYTES_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", text.size(), " bytes; keys have ", KEY_BYTES_MAX, " at most"));
}

uint64_t NewHistory() {
  absl::BitGen random;
  return absl::Uniform<uint64_t>(absl::IntervalClosed, random, 1, std::numeric_limits<uint64_t>::max());
}

// Whether the rest of the value's last word is 0, as every Hawser client leaves it. ServerContext::Attach()
// copies a value that is followed by something else, whatever its size, for each client that gets it.
bool EndsInZeros(capnp::Data::Reader bytes) {
  const size_t rest = -bytes.size() % sizeof(capnp::word);
  return std::all_of(bytes.end(), bytes.end() + rest, [](uint8_t byte) { return byte == 0; });
}

// Keeps the value of a request. Counts the memory that it holds, which may be more than the size of the
// value.
Value Keep(hawser::ServerContext& context, capnp::Data::Reader bytes) {
  hawser::KeptBytes kept = context.KeepBytes(bytes);
  return {kept.bytes, std::move(kept.owner), kept.memory_bytes};
}

// Sets the value of a reply. From `refer_min` bytes on the reply is sent from the value's own memory, and
// shares its ownership until the client has READ it, even if the key changes.
template <typename Builder>
void SetValue(hawser::ServerContext& context, const Value& value, size_t refer_min, Builder to) {
  if (value.bytes.size() < refer_min) {
    to.setValue(value.bytes);
  } else {
    to.adoptValue(context.Attach(value.bytes, value.owner));
  }
}

hawser::PendingCall<Watcher::PushResults> Send(const WatcherStub& watcher, uint64_t watch,
                                               const ChangeLog::Batch& batch) {
  auto call = watcher.Push({.timeout = kPushTimeout});
  call.request().setWatch(watch);
  call.request().setLost(batch.lost);
  call.request().setRevision(batch.through);
  auto events = call.request().initEvents(batch.changes.size());
  for (size_t i = 0; i < batch.changes.size(); ++i) {
    const Change& change = batch.changes[i];
    events[i].setKey(change.key);
    events[i].setKind(change.kind == Change::Kind::kPut ? Watcher::Event::Kind::PUT
                                                        : Watcher::Event::Kind::REMOVE);
    events[i].setSize(change.size_bytes);
    events[i].setRevision(change.revision);
  }
  return call.Send();
}

using Clock = std::chrono::steady_clock;

// The watcher chooses the code of its answer, DeadlineExceeded, too. So the clock says whether the time of
// the push is over, give or take what the two sides differ: a client may find that first, and say so.
WatchHub::PushEnd EndOf(const absl::Status& status, Clock::time_point sent_at) {
  if (status.ok()) return WatchHub::PushEnd::kReceived;
  const bool is_over = absl::FromChrono(Clock::now() - sent_at) >= kPushTimeout / 2;
  if (absl::IsDeadlineExceeded(status) && is_over) return WatchHub::PushEnd::kTimedOut;
  return absl::IsResourceExhausted(status) ? WatchHub::PushEnd::kNoMemory : WatchHub::PushEnd::kFailed;
}

// Calls `soon` in the next turn of the poller of the watcher's channel, or after the answer if that is
// earlier.
examples::Worker AwaitPush(hawser::PendingCall<Watcher::PushResults> sent, Clock::time_point sent_at,
                           WatchHub::PushDone done, WatchHub::Soon soon) {
  hawser::FirstOf<Watcher::PushResults> push;
  push.Add(std::move(sent));
  co_await push.Within(kPause);
  soon();
  absl::StatusOr<hawser::Reply<Watcher::PushResults>> reply = co_await push.Result();
  done(EndOf(reply.status(), sent_at));
}

void SendPush(const WatcherStub& watcher, uint64_t watch, const ChangeLog::Batch& batch,
              WatchHub::PushDone done, WatchHub::Soon soon) {
  const Clock::time_point now = Clock::now();
  auto sent = Send(watcher, watch, batch);
  if (soon) {
    AwaitPush(std::move(sent), now, std::move(done), std::move(soon));
    return;
  }
  sent.Then([now, done = std::move(done)](absl::StatusOr<hawser::Reply<Watcher::PushResults>> reply) {
    done(EndOf(reply.status(), now));
  });
}

}  // namespace

KvService::KvService(uint64_t memory_bytes_max, uint64_t log_bytes_max, uint64_t value_bytes_max)
    : value_bytes_max_(value_bytes_max),
      history_(NewHistory()),
      changes_(log_bytes_max),
      store_(memory_bytes_max, &changes_),
      hub_(&changes_) {}

bool KvService::OnlyReads(const hawser::Method& method) {
  for (const hawser::Method* each : {&KeyValueStub::kGet, &KeyValueStub::kList, &KeyValueStub::kWatch,
                                     &KeyValueStub::kUnwatch, &KeyValueStub::kStats, &KeyValueStub::kShare}) {
    if (method.interface_id == each->interface_id && method.ordinal == each->ordinal) return true;
  }
  return false;
}

absl::Status KvService::ShareIn(hawser::SharedMemory memory) {
  if (memory.bytes().size() < SharedTable::kMemoryMin) {
    return absl::InvalidArgumentError(absl::StrCat("the memory to share has ", memory.bytes().size(),
                                                   " bytes; it needs ", SharedTable::kMemoryMin));
  }
  shared_.emplace(std::move(memory));
  table_.emplace(shared_->bytes());
  store_.PublishIn(&*table_);
  return absl::OkStatus();
}

absl::Status KvService::Put(hawser::ServerContext& context, KeyValue::PutParams::Reader request,
                            KeyValue::PutResults::Builder reply) {
  const absl::string_view key = View(request.getKey());
  const capnp::Data::Reader bytes = request.getValue();
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  if (bytes.size() > value_bytes_max_) {
    return absl::InvalidArgumentError(absl::StrCat("the value has ", bytes.size(),
                                                   " bytes; this server takes values of ", value_bytes_max_));
  }
  if (!EndsInZeros(bytes))
    return absl::InvalidArgumentError("the last word of the value is not filled up with zeros");
  absl::StatusOr<uint64_t> revision = store_.Put(key, Keep(context, bytes));
  if (!revision.ok()) return revision.status();
  reply.setRevision(*revision);
  hub_.Notify();
  return absl::OkStatus();
}

absl::Status KvService::Get(hawser::ServerContext& context, KeyValue::GetParams::Reader request,
                            KeyValue::GetResults::Builder reply) {
  const absl::string_view key = View(request.getKey());
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  absl::StatusOr<Entry> entry = store_.Get(key);
  if (!entry.ok()) return entry.status();
  reply.setRevision(entry->revision);
  SetValue(context, entry->value, kReferredMin, reply);
  return absl::OkStatus();
}

absl::Status KvService::Remove(hawser::ServerContext&, KeyValue::RemoveParams::Reader request,
                               KeyValue::RemoveResults::Builder reply) {
  const absl::string_view key = View(request.getKey());
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  absl::StatusOr<uint64_t> revision = store_.Remove(key);
  if (!revision.ok()) return revision.status();
  reply.setRevision(*revision);
  hub_.Notify();
  return absl::OkStatus();
}

absl::Status KvService::List(hawser::ServerContext& context, KeyValue::ListParams::Reader request,
                             KeyValue::ListResults::Builder reply) {
  const bool values = request.getValues();
  const size_t most = values ? kKeysWithValuesMax : kKeysMax;
  const size_t limit = request.getLimit() == 0 ? most : std::min<size_t>(request.getLimit(), most);
  const absl::string_view prefix = View(request.getPrefix());
  const absl::string_view start = View(request.getStart());
  if (absl::Status status = CheckPartOfKey("the prefix", prefix); !status.ok()) return status;
  if (absl::Status status = CheckPartOfKey("the start", start); !status.ok()) return status;
  const Store::Page page =
      store_.List(prefix, start, limit, values ? kPageValueBytesMax : kPageKeyBytesMax, values);
  auto entries = reply.initEntries(page.items.size());
  for (size_t i = 0; i < page.items.size(); ++i) {
    const auto& [key, entry] = page.items[i];
    entries[i].setKey(key);
    entries[i].setSize(entry.value.bytes.size());
    entries[i].setRevision(entry.revision);
    if (values) SetValue(context, entry.value, kReferredInPageMin, entries[i]);
  }
  reply.setNext(page.next);
  return absl::OkStatus();
}

absl::Status KvService::Watch(hawser::ServerContext& context, KeyValue::WatchParams::Reader request,
                              KeyValue::WatchResults::Builder reply) {
  const absl::string_view prefix = View(request.getPrefix());
  if (absl::Status status = CheckPartOfKey("the prefix", prefix); !status.ok()) return status;
  std::shared_ptr<hawser::Channel> peer = context.peer();
  if (peer == nullptr) {
    return absl::FailedPreconditionError(
        "a watch needs a Watcher to push to: offer one in ChannelOptions::services");
  }
  // The channel's address identifies the client in the hub, which removes all its watches when it
  // disconnects.
  const void* name = peer.get();
  if (hub_.AddPeer(peer, peer->peer_address())) {
    peer->OnClosed([this, name] { hub_.RemovePeer(name); });
  }
  std::optional<uint64_t> after;
  if (request.getHistory() == history_) after = request.getAfter();
  absl::StatusOr<WatchHub::Started> started =
      hub_.Watch(name, request.getWatch(), prefix, after,
                 [stub = WatcherStub(peer), watch = request.getWatch()](
                     const ChangeLog::Batch& batch, WatchHub::PushDone done, WatchHub::Soon soon) {
                   SendPush(stub, watch, batch, std::move(done), std::move(soon));
                 });
  if (!started.ok()) return started.status();
  reply.setHistory(history_);
  reply.setRevision(started->revision);
  const bool other_history = request.getHistory() != 0 && request.getHistory() != history_;
  reply.setLost(started->lost || other_history);
  return absl::OkStatus();
}

absl::Status KvService::Unwatch(hawser::ServerContext& context, KeyValue::UnwatchParams::Reader request,
                                KeyValue::UnwatchResults::Builder) {
  if (std::shared_ptr<hawser::Channel> peer = context.peer()) hub_.Unwatch(peer.get(), request.getWatch());
  return absl::OkStatus();
}

absl::Status KvService::Stats(hawser::ServerContext&, KeyValue::StatsParams::Reader,
                              KeyValue::Stats::Builder reply) {
  const Store::Totals totals = store_.totals();
  reply.setKeys(totals.keys);
  reply.setValueBytes(totals.value_bytes);
  reply.setMemoryBytes(totals.memory_bytes);
  reply.setRevision(changes_.last_revision());
  reply.setWatches(hub_.watches());
  if (server_ == nullptr) return absl::OkStatus();
  const hawser::ServerStats stats = server_->stats();
  reply.setConnections(stats.connections);
  reply.setCallsRunning(stats.calls_running);
  reply.setCallsTotal(stats.calls_total);
  reply.setLeasedBytes(stats.leased_bytes);
  return absl::OkStatus();
}

absl::Status KvService::Share(hawser::ServerContext& context, KeyValue::ShareParams::Reader,
                              KeyValue::Table::Builder reply) {
  if (!shared_.has_value()) {
    return absl::FailedPreconditionError("this server shares no memory: start it with --one_sided");
  }
  reply.setBuckets(table_->buckets());
  reply.setBucketBytes(SharedTable::kBucketBytes);
  return context.Grant(*shared_, {.access = hawser::Access::kRead}, reply.initMemory());
}

}  // namespace kv
