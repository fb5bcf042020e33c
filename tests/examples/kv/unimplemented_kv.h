#ifndef HAWSER_TESTS_EXAMPLES_KV_UNIMPLEMENTED_KV_H_
#define HAWSER_TESTS_EXAMPLES_KV_UNIMPLEMENTED_KV_H_

#include "absl/status/status.h"
#include "examples/kv/kv.rpc.h"

namespace kv {

// A key-value service that can do nothing: a test overrides what its client calls.
class UnimplementedKv : public KeyValueService {
 public:
  absl::Status Put(hawser::ServerContext&, KeyValue::PutParams::Reader,
                   KeyValue::PutResults::Builder) override {
    return absl::UnimplementedError("put");
  }
  absl::Status Get(hawser::ServerContext&, KeyValue::GetParams::Reader,
                   KeyValue::GetResults::Builder) override {
    return absl::UnimplementedError("get");
  }
  absl::Status Remove(hawser::ServerContext&, KeyValue::RemoveParams::Reader,
                      KeyValue::RemoveResults::Builder) override {
    return absl::UnimplementedError("remove");
  }
  absl::Status List(hawser::ServerContext&, KeyValue::ListParams::Reader,
                    KeyValue::ListResults::Builder) override {
    return absl::UnimplementedError("list");
  }
  absl::Status Watch(hawser::ServerContext&, KeyValue::WatchParams::Reader,
                     KeyValue::WatchResults::Builder) override {
    return absl::UnimplementedError("watch");
  }
  absl::Status Unwatch(hawser::ServerContext&, KeyValue::UnwatchParams::Reader,
                       KeyValue::UnwatchResults::Builder) override {
    return absl::UnimplementedError("unwatch");
  }
  absl::Status Stats(hawser::ServerContext&, KeyValue::StatsParams::Reader,
                     KeyValue::Stats::Builder) override {
    return absl::UnimplementedError("stats");
  }
  absl::Status Share(hawser::ServerContext&, KeyValue::ShareParams::Reader,
                     KeyValue::Table::Builder) override {
    return absl::UnimplementedError("share");
  }
};

}  // namespace kv

#endif  // HAWSER_TESTS_EXAMPLES_KV_UNIMPLEMENTED_KV_H_
