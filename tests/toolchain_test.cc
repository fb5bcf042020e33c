// The compiler and the distribution's libraries are what Hawser is written for, and they work together:
// headers match the libraries that are linked, in this very build configuration (optimised, with a sanitizer,
// ...).

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <string>

#include "absl/base/config.h"
#include "absl/container/flat_hash_map.h"
#include "absl/random/random.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "capnp/message.h"
#include "capnp/rpc.h"
#include "capnp/schema.capnp.h"
#include "capnp/serialize.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kj/async.h"

namespace hawser {
namespace {

TEST(ToolchainTest, TheLanguageIsCxx20OrNewer) { EXPECT_GE(__cplusplus, 202002L); }

TEST(ToolchainTest, CapnProtoIs09OrNewer) { EXPECT_GE(CAPNP_VERSION, 9000); }

TEST(ToolchainTest, AbseilIs20220623OrNewer) { EXPECT_GE(ABSL_LTS_RELEASE_VERSION, 20220623); }

// Debian's abseil has a string_view of its own, newer ones take std's: naming it absl::string_view suits
// both.
TEST(ToolchainTest, AbseilStatusAndStringsLink) {
  const absl::StatusOr<int> result = absl::UnavailableError(absl::StrCat("host ", 1));
  EXPECT_EQ(result.status().message(), "host 1");
  EXPECT_EQ(absl::StrFormat("%s %d", absl::string_view("port"), 7), "port 7");
}

TEST(ToolchainTest, AbseilContainersRandomAndTimeLink) {
  absl::flat_hash_map<std::string, absl::Duration> map;
  for (int i = 0; i < 100; ++i) map[absl::StrCat(i)] = absl::Milliseconds(i);
  EXPECT_EQ(absl::FormatDuration(map.at("42")), "42ms");
  absl::BitGen dice;
  EXPECT_THAT(absl::Uniform(dice, 0, 6), testing::AllOf(testing::Ge(0), testing::Lt(6)));
}

TEST(ToolchainTest, AMessageComesBackAsItWasBuilt) {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<capnp::schema::Node>().setDisplayName("tow");
  const kj::Array<capnp::word> words = capnp::messageToFlatArray(builder);
  capnp::FlatArrayMessageReader reader(words);
  EXPECT_STREQ(reader.getRoot<capnp::schema::Node>().getDisplayName().cStr(), "tow");
}

TEST(ToolchainTest, CapnProtoExceptionsCanBeCaught) {
  const kj::Array<capnp::word> empty = kj::heapArray<capnp::word>(0);
  EXPECT_THROW(capnp::FlatArrayMessageReader(empty).getRoot<capnp::schema::Node>(), kj::Exception);
}

// The runtime libraries are opened, never linked: a machine without them runs everything but the verbs
// fabric.
TEST(ToolchainTest, VerbsIsNotLinked) {
  EXPECT_EQ(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD), nullptr);
  EXPECT_GT(sizeof(ibv_send_wr) + sizeof(rdma_conn_param), 0u);
}

}  // namespace
}  // namespace hawser
