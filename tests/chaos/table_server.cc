// The server of a hash table that clients READ by themselves. A program of a user's: it has what
// docs/guide.md says of one-sided memory, and no more.
//
//   table_server --listen=tcp://127.0.0.1:0 [--torn]
//
// --torn: changes no keys by itself. It stops in the middle of a second value of the first of them, until a
// line comes on stdin; "whole" answers that.

#include <array>
#include <atomic>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/arguments.h"
#include "examples/stop_signal.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/chaos/contents.h"
#include "hawser/tests/chaos/table_slot.h"
#include "tests/chaos/table.rpc.h"

namespace table {
namespace {

using hawser::VersionedCell;

constexpr uint64_t kSlots = 1024;
// After each 64 rounds of changes, about as long as they take: others share the processor.
constexpr absl::Duration kPause = absl::Microseconds(200);

class Service final : public TableService {
 public:
  // The server listens already.
  absl::Status Start(hawser::Server& server) {
    absl::StatusOr<hawser::SharedMemory> memory = server.Share(kSlots * kSlotBytes);
    if (!memory.ok()) return memory.status();
    absl::MutexLock lock(&mutex_);
    memory_.emplace(*std::move(memory));
    return absl::OkStatus();
  }

  absl::Status Open(hawser::ServerContext& context, Table::OpenParams::Reader,
                    Table::OpenResults::Builder reply) override {
    absl::MutexLock lock(&mutex_);
    if (!memory_.has_value()) return absl::UnavailableError("the server is starting");
    reply.setSlots(kSlots);
    reply.setRun(run_);
    return context.Grant(*memory_, {.access = hawser::Access::kRead}, reply.initMemory());
  }

  absl::Status Put(hawser::ServerContext&, Table::PutParams::Reader request,
                   Table::PutResults::Builder reply) override {
    const auto key = request.getKey();
    const auto value = request.getValue();
    reply.setRun(run_);
    return Set({key.begin(), key.size()}, request.getSequence(), {value.begin(), value.size()});
  }

  absl::Status Set(absl::string_view key, uint64_t sequence, absl::Span<const uint8_t> value) {
    if (key.empty() || key.size() > kKeyMax || value.size() > kValueMax) {
      return absl::InvalidArgumentError("no key or value of this table");
    }
    absl::MutexLock lock(&mutex_);
    if (!memory_.has_value()) return absl::UnavailableError("the server is starting");
    Place* place = nullptr;
    for (uint64_t i = SlotOf(key, kSlots); place == nullptr; i = (i + 1) % kSlots) {
      if (places_[i].key.empty() || places_[i].key == key) place = &places_[i];
    }
    if (place->key.empty() && ++used_ > kSlots / 2) {
      --used_;
      return absl::ResourceExhaustedError("the table is full");
    }
    place->key = std::string(key);
    if (sequence <= place->sequence) return absl::OkStatus();
    place->sequence = sequence;
    Slot slot = SlotWith(key, value);
    const size_t index = static_cast<size_t>(place - places_.data());
    VersionedCell cell(memory_->bytes().subspan(index * kSlotBytes, kSlotBytes));
    return cell.Write(slot.bytes()).status();
  }

  // Until `stop`: changes keys of its own, while clients READ them.
  void Churn(const absl::Notification& stop) {
    std::mt19937_64 random(run_);
    for (uint64_t sequence = 1; !stop.HasBeenNotified(); ++sequence) {
      for (int i = 0; i < kChurned; ++i) {
        const std::string key = absl::StrCat(kChurnPrefix, i);
        std::array<uint8_t, kValueMax> value;
        const size_t bytes =
            hawser::chaos::kContentsBytesMin + random() % (kValueMax - hawser::chaos::kContentsBytesMin);
        hawser::chaos::FillContents(key, sequence, value.data(), bytes);
        Set(key, sequence, {value.data(), bytes}).IgnoreError();
      }
      if (sequence % 64 == 0) stop.WaitForNotificationWithTimeout(kPause);
    }
  }

  // Instead of Churn(): puts its keys, then writes the first half of the words of another value of the first.
  absl::Status TearFirst() {
    std::array<uint8_t, kValueMax> value;
    for (int i = 0; i < kChurned; ++i) {
      const std::string key = absl::StrCat(kChurnPrefix, i);
      hawser::chaos::FillContents(key, 1, value.data(), value.size());
      if (absl::Status set = Set(key, 1, value); !set.ok()) return set;
    }
    const std::string key = absl::StrCat(kChurnPrefix, 0);
    hawser::chaos::FillContents(key, 2, value.data(), value.size());
    Slot next = SlotWith(key, value);
    std::memcpy(next_.data(), FirstChurned().data(), kSlotBytes);
    VersionedCell cell({reinterpret_cast<uint8_t*>(next_.data()), kSlotBytes});
    if (absl::Status written = cell.Write(next.bytes()).status(); !written.ok()) return written;
    CopyNext(0, next_.size() / 2);
    return absl::OkStatus();
  }
  // The other half.
  void EndFirst() { CopyNext(next_.size() / 2, next_.size()); }

 private:
  struct Place {
    std::string key;
    uint64_t sequence = 0;
  };

  static Slot SlotWith(absl::string_view key, absl::Span<const uint8_t> value) {
    Slot slot;
    slot.key_bytes = static_cast<uint8_t>(key.size());
    std::memcpy(slot.key, key.data(), key.size());
    slot.value_bytes = static_cast<uint8_t>(value.size());
    std::memcpy(slot.value, value.data(), value.size());
    return slot;
  }

  // The cell of the first key that the server changes.
  absl::Span<uint64_t> FirstChurned() {
    absl::MutexLock lock(&mutex_);
    uint64_t index = SlotOf(absl::StrCat(kChurnPrefix, 0), kSlots);
    while (places_[index].key != absl::StrCat(kChurnPrefix, 0)) index = (index + 1) % kSlots;
    return {reinterpret_cast<uint64_t*>(memory_->data() + index * kSlotBytes), next_.size()};
  }
  // As VersionedCell::Write() does it.
  void CopyNext(size_t from, size_t to) {
    const absl::Span<uint64_t> words = FirstChurned();
    for (size_t i = from; i < to; ++i) {
      std::atomic_ref<uint64_t>(words[i]).store(next_[i], std::memory_order_release);
    }
  }

  std::array<uint64_t, kSlotBytes / sizeof(uint64_t)> next_;  // The cell of the first, after TearFirst().

  const uint64_t run_ = std::random_device()() | uint64_t{std::random_device()()} << 32;
  absl::Mutex mutex_;
  std::optional<hawser::SharedMemory> memory_ ABSL_GUARDED_BY(mutex_);
  std::array<Place, kSlots> places_ ABSL_GUARDED_BY(mutex_);
  uint64_t used_ ABSL_GUARDED_BY(mutex_) = 0;
};

int Main(int argc, char** argv) {
  examples::StopSignal stop;
  std::string uri;
  examples::FlagSet flags;
  bool torn = false;
  flags.Text("listen", &uri).Switch("torn", &torn);
  absl::Status status = flags.Apply(examples::CommandLine::Split({argv + 1, argv + argc}));
  if (!status.ok()) {
    std::cerr << status << std::endl;
    return 2;
  }
  Service service;
  hawser::Server server;
  status = server.AddService(&service);
  if (status.ok()) status = server.Listen(uri).status();
  if (status.ok()) status = service.Start(server);
  if (status.ok() && torn) status = service.TearFirst();
  if (!status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  absl::Notification stopping;
  std::thread churn;
  if (!torn) churn = std::thread([&] { service.Churn(stopping); });
  for (const std::string& address : server.addresses()) std::cout << "listening on " << address << std::endl;
  if (std::string line; torn && std::getline(std::cin, line)) {
    service.EndFirst();
    std::cout << "whole" << std::endl;
  }
  stop.Wait();
  server.Shutdown(absl::Now() + absl::Seconds(5)).IgnoreError();
  stopping.Notify();
  if (churn.joinable()) churn.join();
  return 0;
}

}  // namespace
}  // namespace table

int main(int argc, char** argv) { return table::Main(argc, argv); }
