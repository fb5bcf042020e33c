// A client of kv_server that goes on for long: many calls at once on a few channels, small and large, with
// short and long deadlines, whatever happens to the server and the connections. Checks every answer.
//
// Takes lines: "run", "settle" (answered by "settled": every key has been put with a known size and was read
// back). Ends with its stdin. What is wrong goes to stderr, and is counted in the ledger.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "examples/kv/kv.rpc.h"
#include "hawser/rpc/channel.h"
#include "hawser/tests/chaos/contents.h"
#include "hawser/tests/chaos/ledger.h"
#include "hawser/tests/chaos/watch_check.h"
#include "hawser/tests/chaos/workers.h"

namespace hawser::chaos {
namespace {

// Keys of each worker; the first ones have small values.
constexpr size_t kKeys = 6;
constexpr size_t kSmallKeys = 4;
constexpr size_t kWorkersOfChannel = 4;
// This many successive puts of a key differ in size, by which watchers tell them apart.
constexpr size_t kSizes = 64;
static_assert(kSizes >= kContentsBytesMin && kSizes > WatchCheck::kSizesRemembered);
constexpr size_t kSmallMax = 3500;  // Some do not fit a receive buffer.

// How much later than its deadline a call may end, beyond the delays of this machine.
constexpr absl::Duration kLateMax = absl::Seconds(1);
// Once no harm is done any more and all calls wait for a connection, each must succeed within this time.
constexpr absl::Duration kHealedMax = absl::Seconds(45);

struct Client {
  Ledger* ledger = nullptr;
  ClientRecord* record = nullptr;
  uint64_t slot = 0;
  size_t large_max = 0;
  std::atomic<bool> stop{false};

  // Runs for ever: measures how much later than wanted a thread runs on this machine, which may be busy with
  // other tests. The time in which the whole process was stopped does not count.
  void Sleep() {
    for (;;) {
      const uint64_t stops = record->stops;
      nap_start_ns = absl::GetCurrentTimeNanos();
      absl::SleepFor(kNap);
      const int64_t over_ns = Overslept();
      if (stops % 2 == 0 && record->stops == stops) worst_nap_ns = std::max(worst_nap_ns.load(), over_ns);
    }
  }
  // The worst nap, or that which has not ended yet, four times: a call needs a few threads, one after the
  // other.
  absl::Duration late_max() const {
    return kLateMax + 4 * absl::Nanoseconds(std::max(worst_nap_ns.load(), Overslept()));
  }

  static constexpr absl::Duration kNap = absl::Milliseconds(10);
  int64_t Overslept() const {
    return absl::GetCurrentTimeNanos() - nap_start_ns - absl::ToInt64Nanoseconds(kNap);
  }
  std::atomic<int64_t> nap_start_ns{absl::GetCurrentTimeNanos()};
  std::atomic<int64_t> worst_nap_ns{0};

  void Wrong(absl::string_view what) {
    record->violations.fetch_add(1);
    std::cerr << absl::StrCat("WRONG: ", what, "\n") << std::flush;
  }
};

// One of many threads that call. Has keys of its own.
class Worker {
 public:
  Worker(Client& client, std::shared_ptr<Channel> channel, size_t number, uint64_t seed)
      : client_(client),
        channel_(std::move(channel)),
        stub_(channel_),
        first_key_(number * kKeys),
        random_(seed * 1000 + number) {}

  void Run() {
    while (!client_.stop) {
      const size_t key = Below(kKeys);
      const uint64_t dice = Below(100);
      if (dice < 40) {
        Put(key, Size(key), Options());
      } else if (dice < 75) {
        Get(key, Options());
      } else if (dice < 85) {
        GetForeign();
      } else if (dice < 95) {
        List();
      } else {
        Abandon(key);
      }
    }
  }

  // Every key: put with its size of quiet times, read back.
  void Settle() {
    const absl::Time give_up = absl::Now() + kHealedMax;
    for (size_t key = 0; key < kKeys; ++key) {
      const size_t size = key < kSmallKeys ? 1000 : client_.large_max / 2;
      // A call that began before all was well may still fail; calls are short, so that there is a next one.
      const CallOptions options = {.timeout = kHealedMax / 3, .wait_for_ready = true};
      while (!Put(key, size, options) || !Get(key, options)) {
        if (absl::Now() < give_up) continue;
        client_.Wrong(absl::StrCat("no success with key ", Key(key), " for ",
                                   absl::FormatDuration(kHealedMax),
                                   "; the last failure: ", failure_.ToString()));
        return;
      }
    }
  }

 private:
  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }

  static std::string KeyName(uint64_t slot, size_t index) { return absl::StrCat("c/", slot, "/", index); }
  std::string Key(size_t key) const { return KeyName(client_.slot, first_key_ + key); }
  KeyRecord& Record(size_t key) { return client_.record->keys[first_key_ + key]; }

  size_t Size(size_t key) {
    if (key < kSmallKeys) return kSizes + Below(kSmallMax - kSizes);
    return 16384 + Below(client_.large_max - 16384);
  }

  CallOptions Options() {
    static constexpr int kTimeoutsMs[] = {5, 50, 300, 1000, 3000};
    CallOptions options;
    options.timeout = absl::Milliseconds(kTimeoutsMs[Below(std::size(kTimeoutsMs))]);
    // Always after a failure: a call that fails at once would be tried again at once.
    options.wait_for_ready = !failure_.ok() || Below(2) == 0;
    return options;
  }

  // Measures one call, and judges how it ended as far as that can be said of any.
  struct Watched {
    Watched(Worker* worker, const CallOptions& options)
        : client(worker->client_),
          failure(worker->failure_),
          epoch(client.ledger->epoch),
          stops(client.record->stops),
          deadline(absl::Now() + options.timeout) {}

    // True: it was answered by the server of `epoch`.
    bool Ended(absl::string_view what, const absl::Status& status) {
      const absl::Duration late = absl::Now() - deadline;
      client.record->calls.fetch_add(1, std::memory_order_relaxed);
      failure = status;
      if (status.ok()) client.record->answered.fetch_add(1, std::memory_order_relaxed);
      if (stops % 2 == 0 && client.record->stops == stops) {
        const uint64_t late_us = static_cast<uint64_t>(std::max<int64_t>(0, absl::ToInt64Microseconds(late)));
        uint64_t most = client.record->late_us_max;
        while (late_us > most && !client.record->late_us_max.compare_exchange_weak(most, late_us)) {
        }
        if (late > client.late_max()) {
          client.Wrong(absl::StrCat(what, " ended ", absl::FormatDuration(late),
                                    " after its deadline: ", status.ToString()));
        }
      }
      switch (status.code()) {
        case absl::StatusCode::kOk:
        case absl::StatusCode::kNotFound:
          return epoch % 2 == 0 && client.ledger->epoch == epoch;
        case absl::StatusCode::kUnavailable:
        case absl::StatusCode::kDeadlineExceeded:
          return false;
        default:
          client.Wrong(absl::StrCat(what, ": ", status.ToString()));
          return false;
      }
    }

    Client& client;
    absl::Status& failure;
    const uint64_t epoch;
    const uint64_t stops;
    const absl::Time deadline;
  };

  void Judge(absl::string_view what, const std::string& key, const std::string& wrong) {
    if (!wrong.empty()) client_.Wrong(absl::StrCat(what, " ", key, ": ", wrong));
  }

  bool Put(size_t key, size_t about_bytes, const CallOptions& options) {
    const std::string name = Key(key);
    auto call = stub_.Put(options);
    call.request().setKey(name);
    Watched watched(this, options);
    const uint64_t sequence = Record(key).Issue(watched.epoch);
    const size_t size_bytes = about_bytes / kSizes * kSizes + sequence % kSizes;
    if (size_bytes < 2048) {
      FillContents(name, sequence, call.request().initValue(static_cast<uint32_t>(size_bytes)).begin(),
                   size_bytes);
    } else {
      auto buffer = channel_->AllocateBuffer(size_bytes);
      if (!buffer.ok()) {
        client_.Wrong(absl::StrCat("no buffer: ", buffer.status().ToString()));
        return false;
      }
      FillContents(name, sequence, buffer->data(), size_bytes);
      call.request().adoptValue(call.Attach(*std::move(buffer)));
    }
    auto reply = call.Send().Wait();
    if (watched.Ended("put", reply.status()) && reply.ok()) {
      Judge("put", name, Record(key).Acknowledged(sequence, (*reply)->getRevision()));
    }
    return reply.ok();
  }

  bool Get(size_t key, const CallOptions& options) {
    const std::string name = Key(key);
    auto call = stub_.Get(options);
    call.request().setKey(name);
    Watched watched(this, options);
    auto reply = call.Send().Wait();
    const bool certain = watched.Ended("get", reply.status());
    if (reply.ok()) {
      const uint64_t sequence = Check("get", name, (*reply)->getValue());
      if (sequence != 0 && certain) {
        Judge("get", name, Record(key).Found(watched.epoch, sequence, (*reply)->getRevision()));
      }
    } else if (absl::IsNotFound(reply.status()) && certain) {
      Judge("get", name, Record(key).NotFound(watched.epoch));
    }
    return reply.ok();
  }

  uint64_t Check(absl::string_view what, const std::string& name, capnp::Data::Reader value) {
    std::string why;
    const uint64_t sequence = CheckContents(name, value.begin(), value.size(), &why);
    Judge(what, name, why);
    return sequence;
  }

  // A key of another worker or client.
  void GetForeign() {
    const std::string name = KeyName(Below(Ledger::kClients), Below(ClientRecord::kKeysMax));
    const CallOptions options = Options();
    auto call = stub_.Get(options);
    call.request().setKey(name);
    Watched watched(this, options);
    auto reply = call.Send().Wait();
    watched.Ended("get", reply.status());
    if (reply.ok()) Check("get", name, (*reply)->getValue());
  }

  void List() {
    const CallOptions options = Options();
    auto call = stub_.List(options);
    call.request().setPrefix(absl::StrCat("c/", Below(Ledger::kClients), "/"));
    call.request().setValues(true);
    Watched watched(this, options);
    auto reply = call.Send().Wait();
    watched.Ended("list", reply.status());
    if (!reply.ok()) return;
    for (kv::KeyValue::Entry::Reader entry : (*reply)->getEntries()) {
      Check("list", entry.getKey(), entry.getValue());
    }
  }

  // A get whose answer is not awaited: it is cancelled at once, or when it is under way.
  void Abandon(size_t key) {
    auto call = stub_.Get();
    call.request().setKey(Key(key));
    auto sent = call.Send();
    if (Below(2) == 0) absl::SleepFor(absl::Microseconds(Below(500)));
    client_.record->abandoned.fetch_add(1, std::memory_order_relaxed);
  }

  Client& client_;
  const std::shared_ptr<Channel> channel_;
  kv::KeyValueStub stub_;
  const size_t first_key_;
  std::mt19937_64 random_;
  absl::Status failure_;  // The last call's.
};

int Main(int argc, char** argv) {
  std::string path;
  std::vector<std::string> targets;
  uint64_t slot = 0, seed = 0, large_max = 0;
  examples::FlagSet flags;
  flags.Text("ledger", &path).Texts("target", &targets).Bytes("large_max", 32 << 10, 64 << 20, &large_max);
  flags.Number("slot", 0, Ledger::kClients - 1, &slot).Number("seed", 0, UINT64_MAX, &seed);
  const absl::Status usage = flags.Apply(examples::CommandLine::Split({argv + 1, argv + argc}));
  const auto ledger = Ledger::Open(path);
  if (!usage.ok() || !ledger.ok()) {
    std::cerr << usage << " " << ledger.status() << std::endl;
    return 2;
  }
  Client client = {.ledger = *ledger, .record = &(*ledger)->clients[slot], .slot = slot};
  client.large_max = large_max;
  std::thread([&client] { client.Sleep(); }).detach();

  // A connection's silence and a new connection's backoff are short, so that there is more of both.
  ChannelOptions options;
  options.connect_timeout = absl::Seconds(2);
  options.backoff_max = absl::Milliseconds(500);
  options.connection.keepalive_interval = absl::Seconds(2);
  options.connection.keepalive_timeout = absl::Seconds(2);
  Workers<Worker> workers(client.stop);
  for (const std::string& target : targets) {
    const auto channel = Channel::Create(target, options);
    if (!channel.ok()) {
      std::cerr << channel.status() << std::endl;
      return 2;
    }
    for (size_t i = 0; i < kWorkersOfChannel; ++i) {
      workers.Add(std::make_unique<Worker>(client, *channel, workers.size(), seed));
    }
  }
  for (std::string line; std::getline(std::cin, line);) {
    workers.Stop();
    if (line == "run") {
      workers.Start(&Worker::Run);
    } else if (line == "settle") {
      workers.Start(&Worker::Settle);
      workers.Stop();
      std::cout << "settled" << std::endl;
    }
  }
  workers.Stop();
  std::cout.flush();
  _exit(0);  // The thread that sleeps does not end.
}

}  // namespace
}  // namespace hawser::chaos

int main(int argc, char** argv) { return hawser::chaos::Main(argc, argv); }
