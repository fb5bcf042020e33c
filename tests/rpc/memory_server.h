#ifndef HAWSER_TESTS_RPC_MEMORY_SERVER_H_
#define HAWSER_TESTS_RPC_MEMORY_SERVER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/rpc/remote_memory.h"
#include "hawser/rpc/server.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"
#include "tests/rpc/memory_probe.rpc.h"
#include "tests/rpc/probe.h"

// A server whose memory clients reach by themselves.
namespace hawser {

// Of the memory that it shares.
constexpr size_t kBytes = 1 << 20;

class MemoryProbeImpl final : public memory_probe::MemoryProbeService {
 public:
  absl::Status Grant(ServerContext& context, memory_probe::MemoryProbe::GrantParams::Reader request,
                     memory_probe::MemoryProbe::GrantResults::Builder reply) override {
    GrantOptions options;
    options.offset = request.getOffset();
    if (request.getLength() > 0) options.length = request.getLength();
    options.access = static_cast<Access>(request.getAccess());
    return context.Grant(*memory, options, reply.initTicket());
  }

  SharedMemory* memory = nullptr;
};

// A server that shares memory, and what a client keeps of a ticket.
class SharedMemoryTest : public ::testing::Test {
 protected:
  using Ticket = memory::Ticket;

  void SetUp() override { StartServer(); }

  void StartServer(const std::string& uri = TestUri(), ServerOptions options = {}) {
    server_ = std::make_unique<Server>(std::move(options));
    ASSERT_THAT(server_->AddService(&probe_), IsOk());
    ASSERT_THAT(server_->AddService(&act_), IsOk());
    const absl::StatusOr<std::string> listening = server_->Listen(uri);
    ASSERT_THAT(listening.status(), IsOk());
    uri_ = *listening;
    absl::StatusOr<SharedMemory> memory = server_->Share(kBytes);
    ASSERT_THAT(memory.status(), IsOk());
    Use(*std::move(memory));
    for (size_t i = 0; i < kBytes; ++i) memory_->data()[i] = static_cast<uint8_t>(i * 7 + i / 256);
  }

  void Use(SharedMemory memory) {
    memory_ = std::move(memory);
    probe_.memory = &*memory_;
  }

  std::shared_ptr<Channel> Connect(ChannelOptions options = {}) {
    absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(uri_, std::move(options));
    EXPECT_THAT(channel.status(), IsOk());
    return *channel;
  }

  absl::StatusOr<Reply<memory_probe::MemoryProbe::GrantResults>> Ask(const std::shared_ptr<Channel>& channel,
                                                                     uint64_t offset, uint64_t length,
                                                                     Access access) {
    auto call = memory_probe::MemoryProbeStub(channel).Grant();
    call.request().setOffset(offset);
    call.request().setLength(length);
    call.request().setAccess(static_cast<uint8_t>(access));
    return call.Send().Wait();
  }

  RemoteMemory Reach(const std::shared_ptr<Channel>& channel, uint64_t offset = 0, uint64_t length = 0,
                     Access access = Access::kReadWrite) {
    const auto reply = Ask(channel, offset, length, access);
    EXPECT_THAT(reply.status(), IsOk());
    return RemoteMemory(channel, (*reply)->getTicket());
  }

  std::string Expected(size_t offset, size_t length) const {
    return std::string(reinterpret_cast<const char*>(memory_->data()) + offset, length);
  }

  MemoryProbeImpl probe_;
  ProbeServiceImpl act_;
  std::unique_ptr<Server> server_;
  std::string uri_;
  std::optional<SharedMemory> memory_;
};

inline absl::Span<uint8_t> SpanOf(std::string& bytes) {
  return {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()};
}
inline absl::Span<const uint8_t> SpanOf(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_MEMORY_SERVER_H_
