// The fabric contract over TLS by the kernel: needs one that has it, as the guest's (tests/softroce).

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>
#include <memory>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fabric_contract.h"
#include "hawser/tests/transport/fabric/tls_fabric.h"
#include "hawser/transport/fabric/tcp/fabric.h"

namespace hawser::fabric {
namespace {

SocketAddress Loopback() {
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
}

FabricUnderTest InKernel(const char* name, TcpFabricOptions options) {
  options.rnr_timeout = absl::Milliseconds(300);
  options.kernel_tls = tls::KernelUse::kAlways;
  return {.name = name,
          .create = [options] { return std::make_shared<TlsFabric>(CreateTcpFabric(options)); },
          .listen_address = Loopback(),
          .pushes = true,
          .sends_can_wait = true,
          .posts_inline = true,
          .offers_sends = true,
          .emulated = true,
          .atomics = true};
}

// The contract is worth nothing if the kernel was not used.
TEST(KernelTlsFabricTest, TheKernelHasBothDirectionsAndReadsAreNotCopied) {
  TcpFabricCounters counters;
  FabricWorld world(InKernel("KernelTls", {.counters = &counters}));
  constexpr uint32_t kReads = 8, kBytes = 1 << 20;
  auto [a, b] =
      world.Connect({.send_depth = 256, .receive_depth = 256, .read_depth = 4}, (kReads + 1) * kBytes);
  EXPECT_EQ(counters.kernel_tls_sends.load(), 2u);
  EXPECT_EQ(counters.kernel_tls_receives.load(), 2u);

  const Granted granted = b.Grant(b.At(0, kReads * kBytes), QueuePair::Access::kRead);
  for (size_t i = 0; i < kReads * kBytes; ++i) b.memory()[i] = static_cast<uint8_t>(i * 2654435761 >> 24);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_THAT(a.Receive(i, a.At(kReads * kBytes + i * 1000, 1000)), IsOk());
    ASSERT_THAT(b.Receive(i, b.At(kReads * kBytes + i * 1000, 1000)), IsOk());
  }
  for (uint64_t i = 0; i < kReads; ++i) {
    ASSERT_THAT(a.Read(i, a.At(i * kBytes, kBytes), granted, i * kBytes), IsOk());
  }
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_THAT(a.Send(100 + i, a.At(kReads * kBytes, 100)), IsOk());
    ASSERT_THAT(b.Send(100 + i, b.At(kReads * kBytes, 100)), IsOk());
    if (i % 8 == 0) world.PollOnce();
  }
  HAWSER_UNTIL(world, a.sends.size() == kReads + 200 && b.sends.size() == 200 && a.receives.size() == 200);
  EXPECT_EQ(std::memcmp(a.memory(), b.memory(), kReads * kBytes), 0);
  EXPECT_EQ(counters.read_bytes.load(), uint64_t{kReads} * kBytes);
  EXPECT_EQ(counters.read_bytes_copied.load(), 0u);
}

// The kernel cannot change it, and a writer alone never hears of an end.
TEST(KernelTlsFabricTest, AWornKeyEndsTheConnectionOnBothSides) {
  FabricWorld world(InKernel("KernelTls", {.tls_key_records_max = 20}));
  auto [a, b] = world.Connect({.send_depth = 64, .receive_depth = 64});
  for (uint64_t i = 0; i < 64; ++i) ASSERT_THAT(b.Receive(i, b.At(0, 100)), IsOk());
  for (uint64_t i = 0; i < 64 && !a.news().ended(); ++i) {
    (void)a.Send(i, a.At(0, 100));
    world.PollOnce();
  }
  HAWSER_UNTIL(world, a.news().ended() && b.news().ended());
  EXPECT_THAT(a.news().why, HasCode(absl::StatusCode::kUnavailable));
  EXPECT_THAT(a.news().why.message(), ::testing::HasSubstr("its kernel cannot change it"));
  EXPECT_THAT(b.news().why, HasCode(absl::StatusCode::kUnavailable));
  world.ExpectEverythingComesBack(a);
  world.ExpectEverythingComesBack(b);
}

}  // namespace

std::vector<FabricUnderTest> FabricsUnderTest() {
  // With room for two records, so that frames are cut, and a record waits for the rest of the one before. The
  // tests above have buffers of the usual size.
  return {InKernel("KernelTlsWithTinyBuffers", {.send_buffer_bytes = 32768, .receive_buffer_bytes = 65536})};
}

}  // namespace hawser::fabric
