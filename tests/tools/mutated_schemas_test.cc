// Schemas of a server, with some bytes changed: whatever they say, the tool refuses or uses them, and goes
// on.

#include <capnp/message.h>
#include <capnp/schema-loader.h>
#include <capnp/serialize.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tools/hawser/json_fit.h"
#include "hawser/tools/hawser/json_text.h"
#include "hawser/tools/hawser/schema_text.h"
#include "hawser/tools/hawser/schemas.h"
#include "tests/tools/everything.capnp.h"

namespace hawser::tool {
namespace {

using capnp::schema::Node;
using Nodes = capnp::List<Node>;

// Words of a message. capnp::word cannot be copied.
using Words = std::vector<uint64_t>;

Words ToWords(kj::ArrayPtr<const capnp::word> words) {
  Words copy(words.size());
  memcpy(copy.data(), words.begin(), words.size() * sizeof(capnp::word));
  return copy;
}
kj::ArrayPtr<const capnp::word> FromWords(const Words& words) {
  return {reinterpret_cast<const capnp::word*>(words.data()), words.size()};
}

// All nodes of the schema, as a server sends them.
Words Sent() {
  const auto loader = std::make_unique<capnp::SchemaLoader>();
  loader->loadCompiledTypeAndDependencies<everything::Everything>();
  const auto all = loader->getAllLoaded();
  capnp::MallocMessageBuilder message;
  auto nodes = message.initRoot<capnp::AnyPointer>().initAs<Nodes>(static_cast<uint32_t>(all.size()));
  for (uint32_t i = 0; i < nodes.size(); ++i) nodes.setWithCaveats(i, all[i].getProto());
  return ToWords(capnp::messageToFlatArray(message));
}

struct Outcome {
  int refused = 0;
  int used = 0;
};

// Does with the schemas what the commands do.
void Use(const Schemas& schemas, const std::vector<uint64_t>& ids, Outcome& outcome) {
  for (const uint64_t id : ids) {
    const auto text = SchemaText(schemas, {id});
    text.ok() ? ++outcome.used : ++outcome.refused;
    if (text.ok()) {
      for (const char c : *text) ASSERT_TRUE(c == '\n' || static_cast<uint8_t>(c) >= 0x20) << *text;
    }
    if (!schemas.Get(id).isStruct() || schemas.Get(id).getStruct().getIsGroup()) continue;
    capnp::MallocMessageBuilder message;
    auto built = message.initRoot<capnp::DynamicStruct>(schemas.SchemaOf(id).asStruct());
    FillFromJson("{\"key\": \"k\", \"inners\": [{}], \"numbers\": [1], \"text\": \"t\"}", built)
        .IgnoreError();
    const auto json = ToJson(built.asReader(), {.bytes_max = 1 << 20});
    json.ok() ? ++outcome.used : ++outcome.refused;
  }
  for (const auto& service : schemas.services()) {
    for (const auto& method : Schemas::MethodsOf(service)) MethodText(schemas, method);
  }
  schemas.FindMethod("Everything.echo").IgnoreError();
  schemas.FindNode("All").IgnoreError();
}

void Try(kj::ArrayPtr<const capnp::word> words, Outcome& outcome) {
  try {
    capnp::FlatArrayMessageReader message(words);
    Schemas schemas;
    std::vector<uint64_t> ids;
    absl::Status status;
    for (const Node::Reader node : message.getRoot<capnp::AnyPointer>().getAs<Nodes>()) {
      if (status.ok()) status = schemas.Add(node);
      if (status.ok()) ids.push_back(node.getId());
    }
    schemas.Serve(capnp::typeId<everything::Everything>());
    if (status.ok()) status = schemas.Check();
    if (!status.ok()) {
      ++outcome.refused;
      return;
    }
    Use(schemas, ids, outcome);
  } catch (const kj::Exception&) {  // As main() of hawser does.
    ++outcome.refused;
  }
}

TEST(MutatedSchemasTest, WhateverAServerSendsIsRefusedOrUsed) {
  const Words sent = Sent();
  Outcome honest;
  Try(FromWords(sent), honest);
  EXPECT_EQ(honest.refused, 0);
  EXPECT_GT(honest.used, 20);

  Outcome outcome;
  std::mt19937_64 random(20261125);  // The same in each run.
  for (int i = 0; i < 1500; ++i) {
    Words changed = sent;
    auto* const bytes = reinterpret_cast<uint8_t*>(changed.data());
    const size_t size = changed.size() * sizeof(capnp::word);
    for (uint64_t left = 1 + random() % 4; left > 0; --left) {
      const size_t at = 8 + random() % (size - 8);  // Behind the segment table.
      const uint64_t how = random() % 3;
      bytes[at] = how == 0   ? static_cast<uint8_t>(random())
                  : how == 1 ? bytes[at] ^ (1 << random() % 8)
                             : 0xff;
    }
    Try(FromWords(changed), outcome);
  }
  EXPECT_GT(outcome.refused, 100);
  EXPECT_GT(outcome.used, 100);
}

TEST(MutatedReplyTest, WhateverAServerAnswersIsRefusedOrPrinted) {
  capnp::MallocMessageBuilder honest;
  ASSERT_THAT(
      FillFromJson("{\"text\": \"t\", \"data\": \"d\", \"numbers\": [1, 2, 3], \"inners\": [{\"key\": "
                   "\"k\"}, {\"next\": "
                   "{\"key\": \"l\"}}], \"lists\": [[\"a\"], [\"b\"]], \"choice\": {\"word\": \"w\"}}",
                   honest.initRoot<everything::All>()),
      IsOk());
  const Words sent = ToWords(capnp::messageToFlatArray(honest));
  Outcome outcome;
  std::mt19937_64 random(20261126);
  for (int i = 0; i < 3000; ++i) {
    Words changed = sent;
    auto* const bytes = reinterpret_cast<uint8_t*>(changed.data());
    for (uint64_t left = 1 + random() % 4; left > 0; --left) {
      bytes[8 + random() % (changed.size() * sizeof(capnp::word) - 8)] ^=
          static_cast<uint8_t>(1 << random() % 8);
    }
    try {
      capnp::FlatArrayMessageReader message(FromWords(changed));
      const auto json = ToJson(message.getRoot<everything::All>(), {.bytes_max = 1 << 20});
      json.ok() ? ++outcome.used : ++outcome.refused;
    } catch (const kj::Exception&) {
      ++outcome.refused;
    }
  }
  EXPECT_GT(outcome.refused, 100);
  EXPECT_GT(outcome.used, 100);
}

}  // namespace
}  // namespace hawser::tool
