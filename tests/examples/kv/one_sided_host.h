#ifndef HAWSER_TESTS_EXAMPLES_KV_ONE_SIDED_HOST_H_
#define HAWSER_TESTS_EXAMPLES_KV_ONE_SIDED_HOST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/kv/kv_service.h"
#include "gtest/gtest.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"

namespace kv {

inline absl::StatusOr<uint64_t> Put(const KeyValueStub& kv, const std::string& key,
                                    const std::string& value) {
  auto call = kv.Put();
  call.request().setKey(key);
  call.request().setValue({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
  const auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  return (*reply)->getRevision();
}

inline absl::Status Remove(const KeyValueStub& kv, const std::string& key) {
  auto call = kv.Remove();
  call.request().setKey(key);
  return call.Send().Wait().status();
}

// A server with a key-value store that shares memory.
struct Host {
  explicit Host(size_t shared_bytes, const std::string& at = hawser::TestUri()) {
    absl::StatusOr<hawser::SharedMemory> memory = server.Share(shared_bytes);
    EXPECT_THAT(memory, hawser::IsOk());
    EXPECT_THAT(service.ShareIn(*std::move(memory)), hawser::IsOk());
    EXPECT_THAT(server.AddService(&service), hawser::IsOk());
    const absl::StatusOr<std::string> listening = server.Listen(at);
    EXPECT_THAT(listening, hawser::IsOk());
    uri = *listening;
  }

  KeyValueStub Connect() const {
    const auto channel = hawser::Channel::Connect(uri);
    EXPECT_THAT(channel, hawser::IsOk());
    return KeyValueStub(*channel);
  }

  KvService service{uint64_t{1} << 30, 1 << 20, 64 << 20};
  hawser::Server server{{.pollers = 2}};
  std::string uri;
};

}  // namespace kv

#endif  // HAWSER_TESTS_EXAMPLES_KV_ONE_SIDED_HOST_H_
