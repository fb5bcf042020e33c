// Finds values in the memory of table_server by READs alone, whatever happens to the server and the
// connections, and checks each of them. A program of a user's, as table_server is.
//
//   table_client --target=tcp://127.0.0.1:1 [--slot=0] [--seed=0] [--naive]
//
// Takes lines: "run"; "settle", which is answered by "settled" once each thread has put and found all its
// keys; and "look", by "looked", once each has looked for every key that the server itself changes. Ends with
// its stdin. What is wrong goes to stdout as "WRONG: ...". --naive: takes what a READ has brought without a
// look at its version, which has to be found wrong.

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/tests/chaos/contents.h"
#include "hawser/tests/chaos/table_slot.h"
#include "hawser/tests/chaos/workers.h"
#include "tests/chaos/table.rpc.h"

namespace table {
namespace {

using hawser::RemoteMemory;
using hawser::VersionedCell;

constexpr size_t kThreads = 3;
constexpr size_t kKeys = 4;  // Of each thread.
constexpr int kProbesMax = 64;
// A server that is stopped while it writes leaves a cell that nothing can read.
constexpr int kReadsMax = 100;
constexpr uint8_t kUnused = 0xa5;
// Once no harm is done any more.
constexpr absl::Duration kHealedMax = absl::Seconds(45);

void Wrong(absl::string_view what) { std::cout << absl::StrCat("WRONG: ", what, "\n") << std::flush; }

// The memory of one run of the server.
struct Opened {
  Opened(RemoteMemory remote_memory, uint64_t slot_count, uint64_t of_run)
      : memory(std::move(remote_memory)), slots(slot_count), run(of_run) {}
  RemoteMemory memory;
  const uint64_t slots;
  const uint64_t run;
};

struct Client {
  std::shared_ptr<hawser::Channel> channel;
  uint64_t slot = 0;
  bool naive = false;
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> found{0}, torn{0}, failed{0}, opened{0};

  absl::Mutex mutex;
  std::shared_ptr<Opened> memory ABSL_GUARDED_BY(mutex);

  absl::StatusOr<std::shared_ptr<Opened>> Memory() {
    {
      absl::MutexLock lock(&mutex);
      if (memory != nullptr) return memory;
    }
    auto reply = TableStub(channel).Open({.timeout = absl::Seconds(3)}).Send().Wait();
    if (!reply.ok()) return reply.status();
    auto made = std::make_shared<Opened>(RemoteMemory(channel, (*reply)->getMemory()), (*reply)->getSlots(),
                                         (*reply)->getRun());
    if (made->slots == 0 || made->slots > made->memory.size_bytes() / kSlotBytes) {
      return absl::DataLossError("a table of another size than its memory");
    }
    ++opened;
    absl::MutexLock lock(&mutex);
    memory = made;
    return made;
  }
  // It is of no use any more.
  void Drop(const std::shared_ptr<Opened>& useless) {
    absl::MutexLock lock(&mutex);
    if (memory == useless) memory = nullptr;
  }
};

class Worker {
 public:
  Worker(Client& client, size_t number, uint64_t seed)
      : client_(client), number_(number), random_(seed * 1000 + number) {
    // Registered memory, which a NIC reaches, and memory of the program's, for which the library has a copy.
    if (number % 2 == 0) {
      if (auto buffer = client.channel->AllocateBuffer(kSlotBytes); buffer.ok()) {
        buffer_.emplace(*std::move(buffer));
      }
    }
    own_.resize(kSlotBytes);
    FillAsUnused();
  }

  void Run() {
    while (!client_.stop) {
      const size_t key = Below(kKeys);
      const uint64_t dice = Below(100);
      if (dice < 20) {
        Put(key, absl::Milliseconds(1 + Below(300)));
      } else if (dice < 60) {
        Judge(Find(Name(client_.slot, number_, key), Timeout()), key);
      } else if (dice < 70) {
        Find(Name(Below(2), Below(kThreads), Below(kKeys)), Timeout()).IgnoreError();
      } else {
        FindChurned(Below(kChurned), Timeout()).IgnoreError();
      }
    }
  }

  // The ticket of a connection that was lost is void.
  static bool MayHeal(const absl::Status& found) {
    return absl::IsUnavailable(found) || absl::IsDeadlineExceeded(found) || absl::IsFailedPrecondition(found);
  }

  void Look() {
    const absl::Time give_up = absl::Now() + kHealedMax;
    for (size_t i = 0; i < kChurned; ++i) {
      absl::Status found;
      do {
        found = FindChurned(i, absl::Seconds(5));
      } while (MayHeal(found) && absl::Now() < give_up);
    }
  }

  void Settle() {
    const absl::Time give_up = absl::Now() + kHealedMax;
    for (size_t key = 0; key < kKeys; ++key) {
      while (!Put(key, absl::Seconds(5)) ||
             !Judge(Find(Name(client_.slot, number_, key), absl::Seconds(5)), key)) {
        if (absl::Now() < give_up) continue;
        return Wrong(absl::StrCat("no success for ", absl::FormatDuration(kHealedMax),
                                  "; the last failure: ", failure_.ToString()));
      }
    }
  }

 private:
  // What this thread knows of a key, of one run of the server: a value that it has put or found.
  struct Known {
    uint64_t run = 0;
    uint64_t sequence = 0;
    void Raise(uint64_t of_run, uint64_t to) {
      if (run != of_run) *this = {of_run, 0};
      sequence = std::max(sequence, to);
    }
  };
  struct Found {
    uint64_t run = 0;
    uint64_t sequence = 0;  // 0: there is no such key.
  };

  uint64_t Below(uint64_t bound) { return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_); }
  static std::string Name(uint64_t slot, size_t thread, size_t key) {
    return absl::StrCat("k/", slot, "/", thread, "/", key);
  }
  // Most are enough; some end in the middle, which ends the connection of one-sided operations.
  absl::Duration Timeout() { return Below(50) == 0 ? absl::Microseconds(Below(200)) : absl::Seconds(3); }
  absl::Span<uint8_t> cell() {
    return buffer_.has_value() ? absl::Span<uint8_t>(buffer_->data(), kSlotBytes) : absl::MakeSpan(own_);
  }

  // Fills the memory that this thread READs into. When it is looked at again, it has to be the same: with its
  // result an operation has given it back.
  void FillAsUnused() { std::fill(cell().begin(), cell().end(), kUnused); }
  void CheckUnused() {
    const absl::Span<const uint8_t> bytes = cell();
    if (std::any_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte != kUnused; })) {
      Wrong("memory changed after the result of its READ");
    }
  }

  bool Put(size_t key, absl::Duration timeout) {
    const std::string name = Name(client_.slot, number_, key);
    const uint64_t sequence = ++issued_;
    const size_t bytes =
        hawser::chaos::kContentsBytesMin + Below(kValueMax - hawser::chaos::kContentsBytesMin);
    auto call = TableStub(client_.channel).Put({.timeout = timeout});
    call.request().setKey(name);
    call.request().setSequence(sequence);
    hawser::chaos::FillContents(name, sequence,
                                call.request().initValue(static_cast<uint32_t>(bytes)).begin(), bytes);
    auto reply = call.Send().Wait();
    if (!reply.ok()) {
      Fail("put", reply.status());
      return false;
    }
    known_[key].Raise((*reply)->getRun(), sequence);
    return true;
  }

  absl::Status FindChurned(size_t index, absl::Duration timeout) {
    const auto found = Find(absl::StrCat(kChurnPrefix, index), timeout);
    if (!found.ok() || found->sequence == 0) return found.status();
    Known& known = churned_[index];
    if (known.run == found->run && found->sequence < known.sequence) {
      Wrong(absl::StrCat(kChurnPrefix, index, ": value ", found->sequence, " after ", known.sequence));
    }
    known.Raise(found->run, found->sequence);
    return absl::OkStatus();
  }

  // Of a key of this thread: whether it was found, not older than what is known.
  bool Judge(const absl::StatusOr<Found>& found, size_t key) {
    if (!found.ok()) return false;
    Known& known = known_[key];
    if (known.run == found->run && found->sequence < known.sequence) {
      Wrong(absl::StrCat("key ", key, " of thread ", number_, ": value ", found->sequence, " after ",
                         known.sequence, " was put or found"));
    }
    known.Raise(found->run, found->sequence);
    return found->sequence != 0;
  }

  // By READs alone.
  absl::StatusOr<Found> Find(const std::string& name, absl::Duration timeout) {
    const auto opened = client_.Memory();
    if (!opened.ok()) {
      Fail("open", opened.status());
      return opened.status();
    }
    Opened& table = **opened;
    for (int probe = 0; probe < kProbesMax; ++probe) {
      const uint64_t index = (SlotOf(name, table.slots) + static_cast<uint64_t>(probe)) % table.slots;
      const absl::StatusOr<Slot> slot = ReadSlot(*opened, index, timeout);
      if (!slot.ok()) return slot.status();
      if (slot->key_bytes == 0) return Found{table.run, 0};
      if (slot->name() != name) continue;
      std::string why;
      const uint64_t sequence =
          slot->value_bytes > kValueMax
              ? 0
              : hawser::chaos::CheckContents(name, slot->value, slot->value_bytes, &why);
      if (sequence == 0) {
        Wrong(absl::StrCat(name, ": ", slot->value_bytes, " bytes: ", why));
        return absl::DataLossError(why);
      }
      ++client_.found;
      return Found{table.run, sequence};
    }
    return Found{table.run, 0};
  }

  absl::StatusOr<Slot> ReadSlot(const std::shared_ptr<Opened>& table, uint64_t index,
                                absl::Duration timeout) {
    Slot slot;
    for (int reads = 0; reads < kReadsMax; ++reads) {
      CheckUnused();
      const absl::Status read = table->memory.Read(index * kSlotBytes, cell(), {.timeout = timeout}).Wait();
      const std::vector<uint8_t> brought(cell().begin(), cell().end());
      FillAsUnused();
      if (!read.ok()) {
        // A ticket is good for one connection of the channel, and one run of the server.
        if (absl::IsFailedPrecondition(read)) {
          client_.Drop(table);
        } else {
          Fail("READ", read);
        }
        return read;
      }
      if (client_.naive) {
        TakeShares(brought, slot);
        return slot;
      }
      if (VersionedCell::Decode(brought, slot.bytes()).has_value()) return slot;
      ++client_.torn;
    }
    return absl::AbortedError("the slot has changed each time that it was read");
  }

  // The value in the words of a cell, whatever their versions are.
  static void TakeShares(const std::vector<uint8_t>& words, Slot& slot) {
    const absl::Span<uint8_t> value = slot.bytes();
    for (size_t at = 0; at < value.size(); at += 6) {
      std::memcpy(value.data() + at, words.data() + 8 + at / 6 * 8 + 2,
                  std::min<size_t>(6, value.size() - at));
    }
  }

  void Fail(absl::string_view what, const absl::Status& status) {
    failure_ = status;
    ++client_.failed;
    if (absl::IsUnavailable(status)) std::this_thread::yield();  // It may be so for a while.
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      Wrong(absl::StrCat(what, ": ", status.ToString()));
    }
  }

  Client& client_;
  const size_t number_;
  std::mt19937_64 random_;
  std::optional<hawser::Buffer> buffer_;
  std::vector<uint8_t> own_;
  // Above those of an earlier process of this slot.
  uint64_t issued_ = static_cast<uint64_t>(absl::GetCurrentTimeNanos());
  Known known_[kKeys], churned_[kChurned];
  absl::Status failure_;
};

int Main(int argc, char** argv) {
  std::string target;
  uint64_t seed = 0;
  Client client;
  examples::FlagSet flags;
  flags.Text("target", &target).Number("seed", 0, UINT64_MAX, &seed).Number("slot", 0, 1, &client.slot);
  flags.Switch("naive", &client.naive);
  const absl::Status usage = flags.Apply(examples::CommandLine::Split({argv + 1, argv + argc}));
  hawser::ChannelOptions options;
  options.connect_timeout = absl::Seconds(2);
  options.backoff_max = absl::Milliseconds(500);
  options.connection.keepalive_interval = absl::Seconds(2);
  options.connection.keepalive_timeout = absl::Seconds(2);
  const auto channel = hawser::Channel::Create(target, options);
  if (!usage.ok() || !channel.ok()) {
    std::cerr << usage << " " << channel.status() << std::endl;
    return 2;
  }
  client.channel = *channel;
  hawser::chaos::Workers<Worker> workers(client.stop);
  for (size_t i = 0; i < kThreads; ++i) workers.Add(std::make_unique<Worker>(client, i, seed));
  for (std::string line; std::getline(std::cin, line);) {
    workers.Stop();
    if (line == "run") {
      workers.Start(&Worker::Run);
    } else if (line == "settle" || line == "look") {
      workers.Start(line == "settle" ? &Worker::Settle : &Worker::Look);
      workers.Stop();
      std::cout << absl::StrCat(line == "settle" ? "settled: " : "looked: ", client.found.load(),
                                " values found, ", client.torn.load(), " READs of a mixture, ",
                                client.failed.load(), " failures, opened ", client.opened.load(), " times\n")
                << std::flush;
    }
  }
  workers.Stop();
  return 0;
}

}  // namespace
}  // namespace table

int main(int argc, char** argv) { return table::Main(argc, argv); }
