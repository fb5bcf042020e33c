#ifndef HAWSER_TESTS_RPC_KEPT_STRUCT_H_
#define HAWSER_TESTS_RPC_KEPT_STRUCT_H_

#include <string.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "hawser/tests/testing/status_matchers.h"
#include "tests/rpc/kept_memory.h"
#include "tests/rpc/kept_probe.rpc.h"
#include "tests/rpc/probe.h"

// A service that keeps structs of its requests, and a client of it.
namespace hawser::kept_structs {

using kept_probe::Item;
using Params = kept_probe::Keeping::PutParams;
using Results = kept_probe::Keeping::PutResults;
using PutCall = Call<Params, Results>;

// The pointers of an Item.
enum : uint32_t { kName, kData, kNext, kOther, kItems, kVoids };

inline uint64_t BytesOf(const Item::Reader& item) { return item.totalSize().wordCount * sizeof(capnp::word); }

inline void Fill(capnp::Data::Builder data, uint8_t with) { memset(data.begin(), with, data.size()); }
inline bool AllAre(capnp::Data::Reader data, uint8_t expected) {
  return std::all_of(data.begin(), data.end(), [&](uint8_t byte) { return byte == expected; });
}

class Keeper : public kept_probe::KeepingService {
 public:
  absl::Status Put(ServerContext& context, Params::Reader request, Results::Builder reply) override {
    return on_put(context, request, reply);
  }
  std::function<absl::Status(ServerContext&, Params::Reader, Results::Builder)> on_put;
};

class KeptStructTest : public ::testing::Test {
 protected:
  KeptStructTest() {
    keeper_.on_put = [this](ServerContext& context, Params::Reader request, Results::Builder) {
      Keep(context, request.getItem());
      return absl::OkStatus();
    };
    // The first request of a connection is not received as later ones are.
    keeps_ = false;
    EXPECT_THAT(NewCall().Send().Wait(), IsOk());
    keeps_ = true;
  }

  PutCall NewCall() { return kept_probe::KeepingStub(channel_).Put(); }
  // A call with an item of `size` bytes of data, all `fill`.
  PutCall NewCall(size_t size, uint8_t fill) {
    PutCall call = NewCall();
    Fill(call.request().initItem().initData(static_cast<uint32_t>(size)), fill);
    return call;
  }
  static absl::Status StatusOf(PutCall call) { return call.Send().Wait().status(); }
  // Other requests take the memory that the last ones had, if it is free.
  void SendOthers(size_t size) {
    keeps_ = false;
    for (int i = 0; i < 3; ++i) EXPECT_THAT(StatusOf(NewCall(size, 0xff)), IsOk());
    keeps_ = true;
  }

  void Keep(ServerContext& context, const Item::Reader& item) {
    if (!keeps_) return;
    kept_.push_back(context.Keep(item));
    is_in_place_ = kept_.back()->getData().begin() == item.getData().begin() && item.hasData();
  }

  Keeper keeper_;
  bool keeps_ = true;
  std::vector<Kept<Item>> kept_;
  bool is_in_place_ = false;  // The last one is.
  const Served served_{keeper_};
  const std::shared_ptr<Channel>& channel_ = served_.channel;
};

}  // namespace hawser::kept_structs

#endif  // HAWSER_TESTS_RPC_KEPT_STRUCT_H_
