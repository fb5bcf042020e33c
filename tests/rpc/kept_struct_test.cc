// A struct of a request that a handler keeps takes little more than its bytes, whatever came with it, and is
// read for as long as it is kept.

#include "tests/rpc/kept_struct.h"

#include <capnp/any.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace hawser::kept_structs {
namespace {

using kept_probe::LaterItem;

// The pointers of the parameters.
enum : uint32_t { kBefore, kItem, kBeside };

uint64_t MostFor(uint64_t bytes) { return bytes + bytes / 4 + 512; }

// ---- What it takes

enum class Shape { kAttached, kBuilt, kMany };

void FillMany(Item::Builder item, size_t size) {
  for (Item::Builder each : item.initItems(static_cast<uint32_t>(size / 128))) {
    each.setNumber(7);
    each.setName("an item of about 128 bytes, whose name has some sixty of them");
  }
}

class KeptStructSizeTest : public KeptStructTest {
 protected:
  absl::Status Send(Shape shape, size_t size) {
    PutCall call = NewCall();
    Item::Builder item = call.request().initItem();
    if (shape == Shape::kAttached) {
      absl::StatusOr<Buffer> buffer = channel_->AllocateBuffer(size);
      if (!buffer.ok()) return buffer.status();
      memset(buffer->data(), 'v', size);
      item.adoptData(call.Attach(*std::move(buffer)));
    } else if (shape == Shape::kBuilt) {
      Fill(item.initData(static_cast<uint32_t>(size)), 'v');
    } else {
      FillMany(item, size);
    }
    return StatusOf(std::move(call));
  }

  // Of the pool and the heap, of client and server.
  int64_t HeldBytes() const {
    return static_cast<int64_t>(served_.server.stats().leased_bytes + (kCountsResident ? HeapBytes() : 0));
  }

  void SendMany(Shape shape, size_t size, size_t count, int64_t slack) {
    SCOPED_TRACE(testing::Message() << size << " bytes, shape " << static_cast<int>(shape));
    // What the client and the pollers keep for the next call.
    keeps_ = false;
    for (size_t i = 0; i < std::min<size_t>(count, 50); ++i) ASSERT_THAT(Send(shape, size), IsOk());
    keeps_ = true;
    kept_.reserve(count);
    const int64_t held_before = HeldBytes();
    const uint64_t resident_before = ResidentBytes();
    for (size_t i = 0; i < count; ++i) ASSERT_THAT(Send(shape, size), IsOk());
    ASSERT_EQ(kept_.size(), count);
    uint64_t memory_bytes = 0;
    for (const Kept<Item>& item : kept_) {
      memory_bytes += item.memory_bytes;
      const uint64_t bytes = BytesOf(*item);
      EXPECT_LE(item.memory_bytes, MostFor(bytes));
      if (shape == Shape::kMany) {
        EXPECT_GE(bytes, size / 2);
        EXPECT_EQ(item->getItems()[item->getItems().size() - 1].getNumber(), 7u);
      } else {
        ASSERT_EQ(item->getData().size(), size);
        EXPECT_EQ(item->getData()[size - 1], 'v');
      }
    }
    EXPECT_LE(HeldBytes() - held_before, static_cast<int64_t>(memory_bytes) + slack);
    if (kCountsResident) {
      constexpr uint64_t kSlabs = 3 * (2 << 20);  // The last of each class is not full.
      EXPECT_LE(ResidentBytes(), resident_before + memory_bytes + kSlabs + 4 * size);
    }
    kept_ = {};
  }
};

TEST_F(KeptStructSizeTest, AtEachSizeItTakesAQuarterMoreAnd512) {
  constexpr int64_t kConnection = 512 << 10;  // Receives, and messages that are kept for the next call.
  for (const size_t size :
       {size_t{1} << 10, size_t{1500},      size_t{2} << 10,  size_t{2800},      size_t{3300},
        size_t{3900},    size_t{4} << 10,   size_t{5000},     size_t{6000},      size_t{8} << 10,
        size_t{12'000},  size_t{16} << 10,  size_t{20'000},   size_t{27'000},    size_t{32} << 10,
        size_t{50'000},  size_t{64} << 10,  size_t{100'000},  size_t{128} << 10, size_t{200'000},
        size_t{262'100}, size_t{256} << 10, size_t{420'000},  size_t{1} << 20,   size_t{3} << 20,
        size_t{4} << 20, size_t{5'000'000}, size_t{16} << 20, size_t{64} << 20}) {
    const size_t count = std::clamp<size_t>((size_t{8} << 20) / size, 2, 300);
    SendMany(Shape::kAttached, size, count, kConnection);
    SendMany(Shape::kBuilt, size, count, kConnection);
    if (size <= (4 << 20)) SendMany(Shape::kMany, size, count, kConnection);
  }
}

// What owns it counts, too: many of them would take more than a quarter otherwise.
TEST_F(KeptStructSizeTest, ManySmallOnesTakeWhatTheySay) {
  constexpr size_t kCount = 3000;
  constexpr int64_t kBuffers = 64 << 10;        // Of the pool, in use or not by chance.
  constexpr int64_t kRegistered = kCount * 48;  // What the pool has of each buffer.
  for (const size_t size : {1, 64, 300, 900}) SendMany(Shape::kBuilt, size, kCount, kBuffers);
  SendMany(Shape::kBuilt, 2000, kCount, kBuffers + kRegistered);
  // Of two segments.
  SendMany(Shape::kAttached, 4096, kCount, kBuffers + kRegistered);
}

// A program that counts what it keeps meets its limit with small requests, too.
TEST_F(KeptStructTest, SmallRequestsCountAsWhatTheyTake) {
  constexpr uint64_t kLimitBytes = 8 << 20, kSlack = 3 << 20;
  std::vector<Kept<Params>> kept;
  kept.reserve(kLimitBytes / 64);
  uint64_t kept_bytes = 0;
  keeper_.on_put = [&](ServerContext& context, Params::Reader request, Results::Builder) {
    Kept<Params> params = context.Keep(request);
    if (kept_bytes + params.memory_bytes > kLimitBytes) return absl::ResourceExhaustedError("the test's");
    kept_bytes += params.memory_bytes;
    kept.push_back(std::move(params));
    return absl::OkStatus();
  };
  const uint64_t resident_before = ResidentBytes();
  absl::Status status;
  while (status.ok() && kept.size() < kept.capacity()) status = StatusOf(NewCall(64, 'x'));
  EXPECT_THAT(status, HasCode(absl::StatusCode::kResourceExhausted));
  if (kCountsResident) {
    EXPECT_LE(ResidentBytes(), resident_before + kept_bytes + kept.size() * sizeof(kept[0]) + kSlack);
  }
}

// ---- Where it is

TEST_F(KeptStructTest, OneThatFillsItsRequestIsKeptWhereItWasReceived) {
  for (const size_t size : {3500, 4096, 5000, 100'000, 5'000'000}) {
    kept_.clear();
    ASSERT_THAT(StatusOf(NewCall(size, 'v')), IsOk());
    EXPECT_TRUE(is_in_place_) << size;
    SendOthers(size);
    EXPECT_TRUE(AllAre(kept_[0]->getData(), 'v')) << size;
  }
}

// The receive buffer of a large request is back in the pool before its handler runs.
TEST_F(KeptStructTest, ARequestWithMetadataIsKeptInItsBufferToo) {
  keeper_.on_put = [this](ServerContext& context, Params::Reader request, Results::Builder) {
    EXPECT_EQ(context.metadata().Get("key"), "value");
    Keep(context, request.getItem());
    EXPECT_EQ(context.metadata().Get("key"), "value");
    return absl::OkStatus();
  };
  const Metadata metadata = {{"key", "value"}};
  for (const size_t size : {3300, 4096, 64 << 10, 1 << 20}) {
    kept_.clear();
    PutCall call = kept_probe::KeepingStub(channel_).Put({.metadata = &metadata});
    Fill(call.request().initItem().initData(static_cast<uint32_t>(size)), 'v');
    ASSERT_THAT(StatusOf(std::move(call)), IsOk());
    EXPECT_TRUE(is_in_place_) << size;
    EXPECT_LE(kept_[0].memory_bytes, MostFor(size));
  }
}

TEST_F(KeptStructTest, OneThatIsAPartOfItsRequestIsCopied) {
  for (const size_t size : {100, 1500, 10'001, 200'000}) {
    kept_.clear();
    PutCall call = NewCall(size, 'v');
    absl::StatusOr<Buffer> ballast = channel_->AllocateBuffer(1 << 20);
    ASSERT_THAT(ballast, IsOk());
    memset(ballast->data(), 'b', ballast->size_bytes());
    call.request().adoptBeside(call.Attach(*std::move(ballast)));
    const uint64_t leased_before = served_.server.stats().leased_bytes;
    ASSERT_THAT(StatusOf(std::move(call)), IsOk());
    EXPECT_FALSE(is_in_place_);
    EXPECT_LE(kept_[0].memory_bytes, MostFor(BytesOf(*kept_[0])));
    EXPECT_LT(served_.server.stats().leased_bytes, leased_before + (512 << 10)) << "the request is kept";
    SendOthers(size);
    ASSERT_EQ(kept_[0]->getData().size(), size);
    EXPECT_TRUE(AllAre(kept_[0]->getData(), 'v'));
  }
}

// The request itself, a struct in it and in that, an element of a list, and one of a list that was one of
// texts when the client was built.
TEST_F(KeptStructTest, EachStructOfARequestIsFoundWhereItWasReceived) {
  constexpr uint32_t kSize = 100'000;
  using Find = std::function<Item::Reader(const Params::Reader&)>;
  const auto send = [&](const Find& find, const std::function<void(Item::Builder)>& build) {
    keeper_.on_put = [&](ServerContext& context, Params::Reader request, Results::Builder) {
      const Item::Reader item = find(request);
      const Kept<Item> kept = context.Keep(item);
      EXPECT_EQ(kept->getName().begin(), item.getName().begin());
      EXPECT_EQ(kept->getName().size(), kSize);
      EXPECT_EQ(kept->getNumber(), item.getNumber());
      const Kept<Params> all = context.Keep(request);
      EXPECT_EQ(find(*all).getName().begin(), item.getName().begin());
      EXPECT_LE(all.memory_bytes, MostFor(kSize));
      return absl::OkStatus();
    };
    PutCall call = NewCall();
    build(call.request().initItem());
    EXPECT_THAT(StatusOf(std::move(call)), IsOk());
  };
  const auto fill = [](Item::Builder item) {
    item.setNumber(7);
    memset(item.initName(kSize).begin(), 'n', kSize);
  };
  send([](const Params::Reader& request) { return request.getItem(); }, fill);
  send([](const Params::Reader& request) { return request.getItem().getNext().getOther(); },
       [&](Item::Builder item) { fill(item.initNext().initOther()); });
  const Find find_second = [](const Params::Reader& request) { return request.getItem().getItems()[1]; };
  send(find_second, [&](Item::Builder item) { fill(item.initItems(3)[1]); });
  send(find_second, [](Item::Builder item) {
    auto texts = capnp::toAny(item).getPointerSection()[kItems].initAs<capnp::List<capnp::Text>>(3);
    memset(texts.init(1, kSize).begin(), 'n', kSize);
  });
}

TEST_F(KeptStructTest, FieldsOfALaterSchemaAreKept) {
  for (const size_t size : {100, 2000, 100'000}) {  // On the heap, copied, where it was received.
    kept_.clear();
    PutCall call = NewCall();
    auto item = capnp::toAny(call.request()).getPointerSection()[kItem].initAs<LaterItem>();
    Fill(item.initData(static_cast<uint32_t>(size)), 'v');
    item.setNote("of a field that the server does not know");
    item.setCount(12345);
    ASSERT_THAT(StatusOf(std::move(call)), IsOk());
    SendOthers(size);
    const auto later = capnp::AnyStruct::Reader(*kept_[0]).as<LaterItem>();
    EXPECT_EQ(later.getNote(), "of a field that the server does not know");
    EXPECT_EQ(later.getCount(), 12345u);
  }
}

TEST_F(KeptStructTest, NothingIsKeptOfAnEmptyOne) {
  ASSERT_THAT(StatusOf(NewCall()), IsOk());
  ASSERT_EQ(kept_.size(), 1u);
  EXPECT_EQ(kept_[0].owner, nullptr);
  EXPECT_EQ(kept_[0].memory_bytes, 0u);
  EXPECT_EQ(kept_[0]->getNumber(), 0u);
  EXPECT_EQ(kept_[0]->getName(), "");
}

// ---- How it is used

TEST_F(KeptStructTest, ADataOfOneIsSentFromThereFromOneKiBOn) {
  for (const size_t size : {100, 1024, 1500, 2801, 3500, 100'001}) {
    kept_.clear();
    keeper_.on_put = [&](ServerContext& context, Params::Reader request, Results::Builder reply) {
      if (request.hasItem()) {
        Keep(context, request.getItem());
        return absl::OkStatus();
      }
      const Kept<Item>& kept = kept_[0];
      capnp::Orphan<capnp::Data> data = context.Attach(kept->getData(), kept.owner);
      EXPECT_EQ(data.getReader().begin() == kept->getData().begin(), size >= 1024) << size;
      reply.adoptData(std::move(data));
      return absl::OkStatus();
    };
    ASSERT_THAT(StatusOf(NewCall(size, 'v')), IsOk());
    const auto reply = NewCall().Send().Wait();
    ASSERT_THAT(reply, IsOk());
    EXPECT_EQ((*reply)->getData().size(), size);
    EXPECT_TRUE(AllAre((*reply)->getData(), 'v'));
  }
}

TEST_F(KeptStructTest, ItOutlivesItsCallItsConnectionAndTheServer) {
  std::vector<Kept<Params>> kept;
  {
    Keeper keeper;
    keeper.on_put = [&](ServerContext& context, Params::Reader request, Results::Builder) {
      kept.push_back(context.Keep(request));
      return absl::OkStatus();
    };
    const Served served(keeper);
    ASSERT_NE(served.channel, nullptr);
    for (const uint32_t size : {100, 100, 2000, 3500, 5000, 100'000}) {
      auto call = kept_probe::KeepingStub(served.channel).Put();
      call.request().initItem().setNumber(size);
      Fill(call.request().getItem().initData(size), 'v');
      ASSERT_THAT(StatusOf(std::move(call)), IsOk());
    }
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (const Kept<Params>& params : kept) {
        for (int round = 0; round < 100; ++round) {
          EXPECT_EQ(params->getItem().getData().size(), params->getItem().getNumber());
        }
        EXPECT_TRUE(AllAre(params->getItem().getData(), 'v'));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(kept.size(), 6u);
}

TEST_F(KeptStructTest, TheThreadOfADeferredCallKeepsOne) {
  keeper_.on_put = [this](ServerContext& context, Params::Reader request, Results::Builder) {
    std::thread([&, call = context.Defer()]() mutable {
      Keep(call.context(), request.getItem());
      call.Finish();
    }).join();
    return absl::OkStatus();
  };
  for (const size_t size : {100, 2000, 100'000}) {
    kept_.clear();
    ASSERT_THAT(StatusOf(NewCall(size, 'v')), IsOk());
    EXPECT_TRUE(AllAre(kept_[0]->getData(), 'v'));
  }
}

// The limit is for what a hostile message costs once.
TEST_F(KeptStructTest, ItIsReadForAsOftenAsOneLikes) {
  for (const size_t size : {400, 2000, 3500, 100'000}) {
    kept_.clear();
    ASSERT_THAT(StatusOf(NewCall(size, 'v')), IsOk());
    const uint64_t limit_bytes = size * ReadLimits().traversal_factor + (8 << 20);
    uint64_t bytes = 0;
    while (bytes < 8 * limit_bytes) bytes += kept_[0]->getData().size();
    EXPECT_TRUE(AllAre(kept_[0]->getData(), 'v'));
  }
}

// To keep one that is not copied costs some steps, not a look at all of it.
TEST_F(KeptStructTest, TheRequestIsReadOnWithinItsLimits) {
  keeper_.on_put = [](ServerContext& context, Params::Reader request, Results::Builder) {
    for (int i = 0; i < 1000; ++i) (void)context.Keep(request);
    return absl::OkStatus();
  };
  EXPECT_THAT(StatusOf(NewCall(1 << 20, 'v')), IsOk());
}

TEST_F(KeptStructTest, OneThatWasMovedFromHasItsDefaults) {
  for (const size_t size : {100, 2000, 100'000}) {
    kept_.clear();
    ASSERT_THAT(StatusOf(NewCall(size, 'v')), IsOk());
    Kept<Item> first = std::move(kept_[0]);
    const Kept<Item> shared = first;
    Kept<Item> second(std::move(first));
    EXPECT_EQ(second.owner, shared.owner);
    EXPECT_EQ(second.memory_bytes, shared.memory_bytes);
    Kept<Item> third;
    third = std::move(second);
    EXPECT_EQ(third->getData().begin(), shared->getData().begin());
    for (const Kept<Item>* moved : {&first, &second}) {
      EXPECT_EQ((*moved)->getData().size(), 0u);
      EXPECT_EQ((*moved).value.getName(), "");
      EXPECT_EQ(moved->owner, nullptr);
      EXPECT_EQ(moved->memory_bytes, 0u);
    }
  }
}

}  // namespace
}  // namespace hawser::kept_structs
