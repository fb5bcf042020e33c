// Which calls a kv_server with --writer allows to which certificates.
#include "examples/kv/authorize.h"

#include <string>
#include <vector>

#include "examples/kv/kv.rpc.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/health.rpc.h"
#include "hawser/introspection.rpc.h"
#include "hawser/perf.rpc.h"
#include "hawser/reflection.rpc.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;
using ::hawser::Method;

class AuthorizeTest : public testing::Test {
 protected:
  absl::Status AsReader(const Method& method) const {
    return Authorize(writers_, {.is_authenticated = true, .dns_names = {"reader.example.org"}}, method);
  }
  absl::Status AsWriter(const Method& method) const {
    return Authorize(writers_, {.is_authenticated = true, .uris = {"spiffe://example.org/writer"}}, method);
  }

  const std::vector<std::string> writers_ = {"writer.example.org", "spiffe://example.org/writer"};
};

TEST_F(AuthorizeTest, EveryoneMayCallWhatChangesNothing) {
  for (const Method* method :
       {&KeyValueStub::kGet, &KeyValueStub::kList, &KeyValueStub::kWatch, &KeyValueStub::kUnwatch,
        &KeyValueStub::kStats, &hawser::health::HealthStub::kCheck, &hawser::health::HealthStub::kWatch,
        &hawser::reflection::ReflectionStub::kList, &hawser::introspection::IntrospectionStub::kSnapshot}) {
    EXPECT_THAT(AsReader(*method), IsOk()) << method->name;
    EXPECT_THAT(AsWriter(*method), IsOk()) << method->name;
  }
}

TEST_F(AuthorizeTest, WhatIsNotNamedIsForWriters) {
  const Method added_method = {KeyValueStub::kGet.interface_id, 99, "kv.capnp:KeyValue.added", true};
  const Method added_service = {0x1234, 0, "other.capnp:Other.read", true};
  for (const Method* method :
       {&KeyValueStub::kPut, &KeyValueStub::kRemove, &hawser::perf::PerfStub::kGet,
        &hawser::perf::PerfStub::kPut, &hawser::perf::PerfStub::kOpenRaw, &added_method, &added_service}) {
    EXPECT_THAT(AsReader(*method), HasCode(absl::StatusCode::kPermissionDenied)) << method->name;
    EXPECT_THAT(AsWriter(*method), IsOk()) << method->name;
  }
  EXPECT_THAT(Authorize(writers_, {}, KeyValueStub::kPut), HasCode(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(std::string(AsReader(KeyValueStub::kPut).message()),
              testing::HasSubstr("DNS:reader.example.org"));
}

}  // namespace
}  // namespace kv
