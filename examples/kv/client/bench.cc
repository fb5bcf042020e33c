#include <array>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "examples/histogram.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/lookup.h"
#include "examples/kv/client/workload.h"
#include "examples/kv/kv.rpc.h"
#include "examples/worker.h"

namespace kv {
namespace {

// The state that the workers of one phase share. Each worker keeps one call in flight, and all run on the
// channel's poller.
// Thread: any.
class Phase {
 public:
  Phase(int workers, uint64_t operations) : running_(workers), left_(static_cast<int64_t>(operations)) {}

  // Whether a worker must run another operation.
  bool Take() { return !failed_ && left_.fetch_sub(1) > 0; }

  void Failed(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    status_.Update(status);
    failed_ = true;
  }

  // A worker has called the server for what it could not read by itself.
  void Called() { ++called_; }
  uint64_t called() const { return called_; }

  using Latencies = std::array<examples::Histogram, kOperations>;
  // Each worker calls this once, at its end.
  void Ended(const Latencies& latencies) {
    {
      absl::MutexLock lock(&mutex_);
      for (size_t i = 0; i < kOperations; ++i) latencies_[i].Merge(latencies[i]);
    }
    running_.DecrementCount();
  }

  // Waits until every worker has ended.
  absl::StatusOr<Latencies> Wait() {
    running_.Wait();
    absl::MutexLock lock(&mutex_);
    if (!status_.ok()) return status_;
    return latencies_;
  }

 private:
  absl::BlockingCounter running_;
  std::atomic<int64_t> left_;
  std::atomic<bool> failed_ = false;
  std::atomic<uint64_t> called_ = 0;
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  Latencies latencies_ ABSL_GUARDED_BY(mutex_);
};

class Bench : public Command {
 public:
  std::string usage() const override {
    return "bench --workload=a|b|c|d|e|f [--records=10000] [--operations=100000] [--value_size=1000] "
           "[--in_flight=16] [--prefix=bench/] [--one_sided]";
  }

  void AddFlags(examples::FlagSet& flags) override {
    flags.Text("workload", &workload_).Text("prefix", &prefix_);
    flags.Number("records", 1, uint64_t{1} << 32, &records_).Number("operations", 0, INT64_MAX, &operations_);
    flags.Bytes("value_size", 0, 256 << 20, &value_bytes_).Number("in_flight", 1, 1024, &in_flight_);
    flags.Switch("one_sided", &one_sided_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    if (workload_.empty()) return absl::InvalidArgumentError("it needs --workload=a to f");
    mix_ = FindMix(workload_);
    if (mix_ == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("--workload=", workload_, ": there are a, b, c, d, e and f"));
    }
    return TakeWords(words, {}, {});
  }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    const KeyValueStub kv(*channel);
    Workload workload(*mix_, records_);
    std::atomic<uint64_t> loaded = 0;

    absl::Status status = Measure("load", records_, [&](Phase* phase) { Load(kv, &loaded, phase); });
    if (!status.ok() || operations_ == 0) return status;
    return Measure(absl::StrCat("workload ", workload_), operations_,
                   [&](Phase* phase) { Operate(kv, &workload, phase); });
  }

 private:
  // Puts records, one after the other.
  examples::Worker Load(KeyValueStub kv, std::atomic<uint64_t>* loaded, Phase* phase) {
    Phase::Latencies latencies;
    absl::BitGen random;
    while (phase->Take()) {
      const absl::Time start = absl::Now();
      auto call = PutRecord(kv, loaded->fetch_add(1), random);
      auto put = call.Send();
      auto reply = co_await std::move(put);
      if (!reply.ok()) phase->Failed(reply.status());
      latencies[static_cast<size_t>(Operation::kInsert)].Add(absl::Now() - start);
    }
    phase->Ended(latencies);
  }

  examples::Worker Operate(KeyValueStub kv, Workload* workload, Phase* phase) {
    std::shared_ptr<RemoteTable> table;  // Each worker asks for one.
    Phase::Latencies latencies;
    absl::BitGen random;
    while (phase->Take()) {
      const absl::Time start = absl::Now();
      const Operation operation = workload->NextOperation(random);
      const bool insert = operation == Operation::kInsert;
      const uint64_t record = insert ? workload->Reserve() : workload->NextRecord(random);
      absl::Status status;
      const std::string key = Workload::Key(prefix_, record);
      bool call_get = operation == Operation::kRead || operation == Operation::kReadModifyWrite;
      if (one_sided_ && call_get) {
        TableLookup lookup(key, table);
        while (!lookup.done()) {
          if (lookup.needs_table()) {
            auto share = kv.Share().Send();
            lookup.OnTable(RemoteTable::Create(kv.channel(), co_await std::move(share)));
          } else {
            auto read = lookup.Read();
            lookup.OnRead(co_await std::move(read));
          }
        }
        const absl::StatusOr<Lookup> found = std::move(lookup).Result();
        call_get = found.ok() && found->is_elsewhere();
        if (call_get) {
          phase->Called();
        } else {
          status = found.ok() ? found->status() : found.status();
        }
      }
      if (call_get) {
        auto call = kv.Get();
        call.request().setKey(key);
        auto get = call.Send();
        auto reply = co_await std::move(get);
        status = reply.status();
      }
      if (operation == Operation::kScan) {
        auto call = kv.List();
        call.request().setPrefix(prefix_);
        call.request().setStart(Workload::Key(prefix_, record));
        call.request().setLimit(Workload::ScanLength(random));
        call.request().setValues(true);
        auto list = call.Send();
        auto reply = co_await std::move(list);
        status = reply.status();
      }
      if (status.ok() &&
          (operation == Operation::kUpdate || operation == Operation::kReadModifyWrite || insert)) {
        auto call = PutRecord(kv, record, random);
        auto put = call.Send();
        auto reply = co_await std::move(put);
        status = reply.status();
        if (insert && status.ok()) workload->Inserted(record);
      }
      if (!status.ok()) phase->Failed(status);
      latencies[static_cast<size_t>(operation)].Add(absl::Now() - start);
    }
    phase->Ended(latencies);
  }

  // Uses another value each time, as an update does.
  hawser::Call<KeyValue::PutParams, KeyValue::PutResults> PutRecord(const KeyValueStub& kv, uint64_t record,
                                                                    absl::BitGen& random) const {
    auto call = kv.Put();
    call.request().setKey(Workload::Key(prefix_, record));
    capnp::Data::Builder value = call.request().initValue(value_bytes_);
    const uint8_t fill = absl::Uniform<uint8_t>(random);
    for (uint8_t& byte : value) byte = fill;
    return call;
  }

  // Runs a phase and prints its speed. `start_worker` starts one of its workers.
  template <typename Start>
  absl::Status Measure(absl::string_view name, uint64_t operations, Start start_worker) const {
    Phase phase(static_cast<int>(in_flight_), operations);
    const absl::Time start = absl::Now();
    for (uint64_t i = 0; i < in_flight_; ++i) start_worker(&phase);
    absl::StatusOr<Phase::Latencies> latencies = phase.Wait();
    const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
    if (!latencies.ok()) return latencies.status();

    examples::Histogram all;
    for (const examples::Histogram& latency : *latencies) all.Merge(latency);
    absl::FPrintF(stdout, "%s: %d operations in %.2f s, %.0f ops/s, %s\n", name, operations, seconds,
                  static_cast<double>(operations) / seconds, all.ToString());
    for (size_t i = 0; i < kOperations; ++i) {
      const examples::Histogram& latency = (*latencies)[i];
      if (latency.count() == 0 || latency.count() == all.count()) continue;
      absl::FPrintF(stdout, "  %s: %d, %s\n", kOperationNames[i], latency.count(), latency.ToString());
    }
    if (phase.called() > 0) {
      absl::FPrintF(stdout,
                    "  %d of the reads by a call: their values are not in the memory that is shared\n",
                    phase.called());
    }
    std::fflush(stdout);
    return absl::OkStatus();
  }

  std::string workload_;
  std::string prefix_ = "bench/";
  const Mix* mix_ = nullptr;
  uint64_t records_ = 10000;
  uint64_t operations_ = 100000;
  uint64_t value_bytes_ = 1000;
  uint64_t in_flight_ = 16;
  bool one_sided_ = false;
};

}  // namespace

std::unique_ptr<Command> NewBench() { return std::make_unique<Bench>(); }

}  // namespace kv
