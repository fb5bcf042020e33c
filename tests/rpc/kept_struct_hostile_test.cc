// A hostile client makes a handler that keeps structs of its requests neither keep nor work more than the
// bytes that it sends are worth.

#include <capnp/any.h>

#include <functional>
#include <string>
#include <utility>

#include "tests/rpc/kept_struct.h"

namespace hawser::kept_structs {
namespace {

constexpr uint64_t kReceiveBuffer = 4096;

// The words of a struct's pointers, to say in a request what no builder says.
uint64_t* PointersOf(Item::Builder item) {
  const kj::ArrayPtr<const uint8_t> data = capnp::AnyStruct::Reader(item.asReader()).getDataSection();
  return const_cast<uint64_t*>(reinterpret_cast<const uint64_t*>(data.end()));
}

// From `item` on `depth` items lead to the next one twice, so that the last one is met 2^depth times. Returns
// that.
Item::Builder Amplify(Item::Builder item, int depth) {
  for (; depth > 0; --depth) {
    const Item::Builder next = item.initNext();
    uint64_t* const pointers = PointersOf(item);
    // An offset of words from the end of the pointer, two bits further up.
    pointers[kOther] = pointers[kNext] - (uint64_t{kOther - kNext} << 2);
    item = next;
  }
  return item;
}

// All of its objects are in the request once, and are met thousands of times. A copy of it would have them so
// often.
TEST_F(KeptStructTest, SharedObjectsTakeNoMoreThanTheRequest) {
  struct Case {
    int depth;
    uint32_t data_bytes;
    uint64_t memory_bytes_max;
  };
  // In the object of a message, in a receive buffer, in a buffer that it was READ into.
  for (const Case& each :
       {Case{6, 0, 1024}, Case{10, 2000, kReceiveBuffer + 512}, Case{5, 100'000, 140'000}}) {
    for (const bool is_deep : {false, true}) {
      kept_.clear();
      keeper_.on_put = [&](ServerContext& context, Params::Reader request, Results::Builder) {
        Keep(context, is_deep ? request.getItem().getOther() : request.getItem());
        return absl::OkStatus();
      };
      PutCall call = NewCall();
      const Item::Builder last = Amplify(call.request().initItem(), each.depth);
      Item::Builder(last).setNumber(4711);
      if (each.data_bytes != 0) Fill(Item::Builder(last).initData(each.data_bytes), 'v');
      ASSERT_THAT(StatusOf(std::move(call)), IsOk());
      SendOthers(each.data_bytes);
      const Kept<Item>& kept = kept_.at(0);
      EXPECT_LE(kept.memory_bytes, each.memory_bytes_max);
      EXPECT_GT(BytesOf(*kept), 2 * kept.memory_bytes) << "the test amplifies nothing";
      Item::Reader item = *kept;
      for (int i = is_deep ? 1 : 0; i < each.depth; ++i) item = i % 2 == 0 ? item.getNext() : item.getOther();
      EXPECT_EQ(item.getNumber(), 4711u);
      EXPECT_EQ(item.getData().size(), each.data_bytes);
      EXPECT_TRUE(AllAre(item.getData(), 'v'));
    }
  }
}

// Nor does the search for it take longer than a look at the request may.
TEST_F(KeptStructTest, ASearchThroughTheRestOfTheRequestHasAnEnd) {
  PutCall call = NewCall();
  Amplify(call.request().initBefore(), 40);
  Fill(Amplify(call.request().initItem(), 3).initData(2000), 'v');
  const absl::Status status = StatusOf(std::move(call));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ReadLimits::traversal_factor"));
}

// Each search for one that is kept in place goes through those before it.
TEST_F(KeptStructTest, ManyOfOneRequestCostNoMoreThanItsLimits) {
  constexpr unsigned kItems = 40;
  int kept = 0;
  keeper_.on_put = [&](ServerContext& context, Params::Reader request, Results::Builder) {
    for (const Item::Reader each : request.getItem().getItems()) {
      EXPECT_TRUE(each.hasNext() || each.hasOther());
      (void)context.Keep(each);
      ++kept;
    }
    return absl::OkStatus();
  };
  auto call = kept_probe::KeepingStub(channel_).Put();
  auto items = call.request().initItem().initItems(kItems);
  Amplify(items[0].initNext(), 11);
  const uint64_t* const first = PointersOf(items[0]) + kNext;
  for (unsigned i = 1; i < kItems; ++i) {
    uint64_t* const pointer = PointersOf(items[i]) + kOther;
    *pointer = *first - (static_cast<uint64_t>(pointer - first) << 2);
  }
  const absl::Status status = StatusOf(std::move(call));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ReadLimits::traversal_factor"));
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 20);
}

// Elements of no size cost the client nothing. Reading such a list takes a second for each pointer to it.
TEST_F(KeptStructTest, OneWithAnEndlessListIsRefused) {
  constexpr uint32_t kElements = 1 << 28;
  for (const size_t size : {100, 2000, 100'000}) {
    const auto send = [&](const std::function<void(Item::Builder)>& build) {
      PutCall call = NewCall(size, 'v');
      build(call.request().getItem());
      return StatusOf(std::move(call));
    };
    EXPECT_THAT(send([](Item::Builder item) { item.initVoids(kElements); }),
                HasCode(absl::StatusCode::kResourceExhausted))
        << size;
    EXPECT_THAT(send([](Item::Builder item) {
                  capnp::toAny(item).getPointerSection()[kItems].initAsListOfAnyStruct(0, 0, kElements);
                }),
                HasCode(absl::StatusCode::kResourceExhausted))
        << size;
    EXPECT_TRUE(kept_.empty());
    EXPECT_THAT(send([](Item::Builder item) { item.initVoids(1000); }), IsOk()) << size;
    ASSERT_EQ(kept_.size(), 1u);
    EXPECT_EQ(kept_[0]->getVoids().size(), 1000u);
    kept_.clear();
  }
}

TEST_F(KeptStructTest, OneWithACapabilityIsMalformed) {
  for (const size_t size : {100, 2000, 100'000}) {
    PutCall call = NewCall(size, 'v');
    PointersOf(call.request().getItem())[kOther] = 3;  // The first one in a table that no message has.
    EXPECT_THAT(StatusOf(std::move(call)), HasCode(absl::StatusCode::kInvalidArgument)) << size;
    EXPECT_TRUE(kept_.empty());
  }
}

}  // namespace
}  // namespace hawser::kept_structs
