#ifndef EXAMPLES_KV_KV_SERVICE_H_
#define EXAMPLES_KV_KV_SERVICE_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "examples/kv/change_log.h"
#include "examples/kv/kv.rpc.h"
#include "examples/kv/shared_table.h"
#include "examples/kv/store.h"
#include "examples/kv/watch_hub.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/shared_memory.h"

namespace kv {

// The KeyValue interface over a Store. It checks requests, and decides where values are stored.
//
// A value of 2 KiB or more stays in the memory into which its request was received, and replies are sent from
// there: it is never copied. A smaller value, or one that is less than an eighth of that memory, is copied
// into plain memory of its own size. It is copied again into each reply, which is cheaper than a segment of
// its own. The limit counts all memory that is held, keys included.
//
// Thread: any; nothing blocks, so it may run on the pollers.
class KvService : public KeyValueService {
 public:
  // `memory_bytes_max` limits all keys and values, `value_bytes_max` one value.
  KvService(uint64_t memory_bytes_max, uint64_t log_bytes_max, uint64_t value_bytes_max);

  // Whether a method of KeyValue changes nothing. False for one that is added later, until it is added here.
  static bool OnlyReads(const hawser::Method& method);

  // Clients find values in `memory`, too (share()). Before the first call. InvalidArgument: it has less than
  // SharedTable::kMemoryMin.
  absl::Status ShareIn(hawser::SharedMemory memory);

  // stats() then reports on `server`, too.
  void ReportOn(const hawser::Server* server) { server_ = server; }

  absl::Status Put(hawser::ServerContext& context, KeyValue::PutParams::Reader request,
                   KeyValue::PutResults::Builder reply) override;
  absl::Status Get(hawser::ServerContext& context, KeyValue::GetParams::Reader request,
                   KeyValue::GetResults::Builder reply) override;
  absl::Status Remove(hawser::ServerContext& context, KeyValue::RemoveParams::Reader request,
                      KeyValue::RemoveResults::Builder reply) override;
  absl::Status List(hawser::ServerContext& context, KeyValue::ListParams::Reader request,
                    KeyValue::ListResults::Builder reply) override;
  absl::Status Watch(hawser::ServerContext& context, KeyValue::WatchParams::Reader request,
                     KeyValue::WatchResults::Builder reply) override;
  absl::Status Unwatch(hawser::ServerContext& context, KeyValue::UnwatchParams::Reader request,
                       KeyValue::UnwatchResults::Builder reply) override;
  absl::Status Stats(hawser::ServerContext& context, KeyValue::StatsParams::Reader request,
                     KeyValue::Stats::Builder reply) override;
  absl::Status Share(hawser::ServerContext& context, KeyValue::ShareParams::Reader request,
                     KeyValue::Table::Builder reply) override;

 private:
  const uint64_t value_bytes_max_;
  const uint64_t history_;  // Never 0.
  std::optional<hawser::SharedMemory> shared_;
  std::optional<SharedTable> table_;  // In it.
  ChangeLog changes_;
  Store store_;
  WatchHub hub_;
  const hawser::Server* server_ = nullptr;
};

}  // namespace kv

#endif  // EXAMPLES_KV_KV_SERVICE_H_
