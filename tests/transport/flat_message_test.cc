#include "hawser/transport/flat_message.h"

#include <capnp/any.h>
#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

using Words = std::vector<uint64_t>;

constexpr int kNestingMax = 64;

// Pointers, as https://capnproto.org/encoding.html has them.
uint64_t Struct(int32_t offset, uint16_t data, uint16_t pointers) {
  return static_cast<uint32_t>(offset) << 2 | uint64_t{data} << 32 | uint64_t{pointers} << 48;
}
uint64_t List(int32_t offset, uint32_t element_size, uint32_t count) {
  return (static_cast<uint32_t>(offset) << 2 | 1) | uint64_t{element_size | count << 3} << 32;
}
constexpr uint32_t kVoid = 0, kBit = 1, kByte = 2, kEightBytes = 5, kPointers = 6, kComposite = 7;

bool IsFlat(const Words& words, int nesting_max = kNestingMax) {
  return transport::IsFlat(absl::MakeConstSpan(words), nesting_max);
}

Words Built(capnp::MessageBuilder& builder) {
  const auto segments = builder.getSegmentsForOutput();
  EXPECT_EQ(segments.size(), 1u);
  const auto* const words = reinterpret_cast<const uint64_t*>(segments[0].begin());
  return Words(words, words + segments[0].size());
}

TEST(FlatMessageTest, WhatABuilderMakesIsFlat) {
  capnp::MallocMessageBuilder builder;
  auto root = builder.initRoot<capnp::AnyPointer>().initAsAnyStruct(2, 6);
  auto pointers = root.getPointerSection();
  pointers[0].setAs<capnp::Text>("tow");
  pointers[1].initAs<capnp::List<bool>>(70);
  pointers[2].initAs<capnp::List<uint16_t>>(5);
  auto texts = pointers[3].initAs<capnp::List<capnp::Text>>(2);
  texts.set(0, "a");
  texts.set(1, "b");
  auto structs = pointers[4].initAsListOfAnyStruct(1, 1, 3);
  for (auto each : structs) each.getPointerSection()[0].setAs<capnp::Text>("c");
  const Words words = Built(builder);
  EXPECT_TRUE(IsFlat(words));
  // Each word less is one too few.
  for (size_t size = 0; size < words.size(); ++size) {
    EXPECT_FALSE(IsFlat(Words(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(size)))) << size;
  }
}

TEST(FlatMessageTest, NothingIsNothing) {
  EXPECT_FALSE(IsFlat({}));
  EXPECT_TRUE(IsFlat({0}));  // A null pointer.
}

TEST(FlatMessageTest, ALargeMessageIsNotLookedAt) {
  EXPECT_TRUE(IsFlat(Words(kFlatWordsMax, 0)));
  EXPECT_FALSE(IsFlat(Words(kFlatWordsMax + 1, 0)));
}

TEST(FlatMessageTest, ObjectsLieInside) {
  EXPECT_TRUE(IsFlat({Struct(0, 1, 0), 7}));
  EXPECT_FALSE(IsFlat({Struct(0, 2, 0), 7}));
  EXPECT_FALSE(IsFlat({Struct(1, 1, 0), 7}));
  EXPECT_FALSE(IsFlat({Struct(-2, 1, 0), 7}));
  EXPECT_FALSE(IsFlat({Struct(-(1 << 29), 1, 0), 7}));
  EXPECT_FALSE(IsFlat({Struct((1 << 29) - 1, 1, 0), 7}));
  EXPECT_FALSE(IsFlat({Struct(0, 0xffff, 0xffff), 7}));
  EXPECT_TRUE(IsFlat({List(0, kByte, 8), 7}));
  EXPECT_FALSE(IsFlat({List(0, kByte, 9), 7}));
  EXPECT_TRUE(IsFlat({List(0, kBit, 64), 7}));
  EXPECT_FALSE(IsFlat({List(0, kBit, 65), 7}));
  EXPECT_FALSE(IsFlat({List(0, kEightBytes, (1u << 29) - 1), 7}));
  EXPECT_FALSE(IsFlat({List(0, kPointers, 2), 0}));
}

TEST(FlatMessageTest, AStructOfNothingMayPointAtItself) { EXPECT_TRUE(IsFlat({Struct(-1, 0, 0)})); }

TEST(FlatMessageTest, CirclesEnd) {
  EXPECT_FALSE(IsFlat({Struct(0, 0, 1), Struct(-1, 0, 1)}));
  EXPECT_FALSE(IsFlat({List(0, kPointers, 1), List(-1, kPointers, 1)}));
}

TEST(FlatMessageTest, NoObjectIsCountedTwice) {
  EXPECT_TRUE(IsFlat({Struct(0, 0, 2), List(1, kByte, 8), 0, 7}));
  EXPECT_FALSE(IsFlat({Struct(0, 0, 2), List(1, kByte, 8), List(0, kByte, 8), 7}));
}

TEST(FlatMessageTest, ElementsOfNoSizeAreCounted) {
  EXPECT_TRUE(IsFlat({List(0, kVoid, 1), 0}));
  EXPECT_FALSE(IsFlat({List(0, kVoid, 2), 0}));
  EXPECT_FALSE(IsFlat({List(0, kVoid, (1u << 29) - 1), 0}));
  EXPECT_TRUE(IsFlat({List(0, kComposite, 0), Struct(1, 0, 0), 0}));
  EXPECT_FALSE(IsFlat({List(0, kComposite, 0), Struct((1 << 29) - 1, 0, 0), 0}));
}

TEST(FlatMessageTest, StructsOfAListFitIt) {
  EXPECT_TRUE(IsFlat({List(0, kComposite, 2), Struct(2, 1, 0), 7, 8}));
  EXPECT_FALSE(IsFlat({List(0, kComposite, 2), Struct(3, 1, 0), 7, 8}));
  EXPECT_FALSE(IsFlat({List(0, kComposite, 3), Struct(2, 1, 0), 7, 8}));
  EXPECT_FALSE(IsFlat({List(0, kComposite, 2), List(2, kByte, 0), 7, 8}));
  // What they point to, too.
  EXPECT_TRUE(IsFlat({List(0, kComposite, 2), Struct(2, 0, 1), List(1, kByte, 8), 0, 7}));
  EXPECT_FALSE(IsFlat({List(0, kComposite, 2), Struct(2, 0, 1), List(1, kByte, 9), 0, 7}));
}

TEST(FlatMessageTest, FarPointersAndCapabilitiesAreNotFlat) {
  EXPECT_FALSE(IsFlat({2}));
  EXPECT_FALSE(IsFlat({3}));
  EXPECT_FALSE(IsFlat({Struct(0, 0, 1), 3}));
}

TEST(FlatMessageTest, NestingHasALimit) {
  Words words;
  for (int i = 0; i < 10; ++i) words.push_back(Struct(0, 0, 1));
  words.push_back(0);
  EXPECT_TRUE(IsFlat(words, 10));
  EXPECT_FALSE(IsFlat(words, 9));
  EXPECT_FALSE(IsFlat({Struct(0, 1, 0), 7}, 0));
}

}  // namespace
}  // namespace hawser::transport
