// Tests that misuse memory on purpose. memcheck_test.sh expects memcheck to report each but the first.
#include <capnp/any.h>
#include <netinet/in.h>
#include <string.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "hawser/base/socket_address.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/transport/fabric/fake_verbs.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/memory/buffer_pool.h"
#include "hawser/transport/wire/message.h"

namespace hawser::transport {
namespace {

// Sends a value of `bytes` whose last 100 were never written.
void SendPartlyFilled(World& world, Link& link, size_t bytes) {
  link.EchoAll();
  const auto buffer = std::make_shared<const Lease>(*world.client.buffers().Acquire(bytes));
  memset(buffer->data(), 'v', bytes - 100);
  OutgoingMessagePtr message = world.client.messages().NewOutgoing();
  message->builder().getRoot<capnp::AnyPointer>().adopt(message->Attach({buffer->data(), bytes}, buffer));
  PendingCall call;
  link.Call(call, std::move(message));
}

TEST(CarelessTest, SendsWhatItWrote) {
  World world;
  Link link(world);
  link.EchoAll();
  for (const size_t bytes : {size_t{100}, size_t{64} << 10, kMiB}) {
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), bytes));
  }
}

TEST(CarelessTest, SendsABufferThatItDidNotFill) {
  World world;
  Link link(world);
  SendPartlyFilled(world, link, 1000);
}

TEST(CarelessTest, GrantsABufferThatItDidNotFill) {
  World world;
  Link link(world);
  SendPartlyFilled(world, link, kMiB);
}

TEST(CarelessTest, ReadsARequestThatHasEnded) {
  World world;
  OutgoingMessagePtr message = NewMessage(world.client.messages(), 100);
  const uint8_t* const data = message->body();
  message.reset();
  EXPECT_NE(*const_cast<const volatile uint8_t*>(data), 1);
}

// Over a device that is a stand-in: what a connection manager would carry.
TEST(CarelessTest, ConnectsWithPrivateDataThatItDidNotWrite) {
  fabric::FakeWorld world({}, {}, /*connect=*/false);
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  const std::unique_ptr<char[]> data(new char[8]);
  EXPECT_THAT(world.qp->Connect(SocketAddress(reinterpret_cast<sockaddr*>(&v4), sizeof(v4)), {data.get(), 8}),
              IsOk());
  world.Poll(1600);
  EXPECT_EQ(world.verbs.connects, 1);
}

TEST(CarelessTest, ReadsAReplyThatHasEnded) {
  World world;
  const uint8_t* data = nullptr;
  {
    Link link(world);
    link.EchoAll();
    PendingCall call;
    link.Call(call, NewMessage(world.client.messages(), kMiB));
    data = (*call.response)->segment(0).data();
  }
  EXPECT_NE(*const_cast<const volatile uint8_t*>(data), 1);
}

}  // namespace
}  // namespace hawser::transport
