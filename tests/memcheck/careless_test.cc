// Programs that send what they did not write. memcheck_test.sh expects memcheck to report each but the first.
#include <string.h>

#include <memory>

#include "gtest/gtest.h"
#include "hawser/tests/transport/testing/expect.h"
#include "hawser/tests/transport/testing/world.h"

namespace hawser::transport {
namespace {

// A value of `bytes` in a buffer of the pool, of which all but the last 100 bytes were written.
void Send(World& world, Link& link, size_t bytes) {
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
  Send(world, link, 1000);
}

TEST(CarelessTest, GrantsABufferThatItDidNotFill) {
  World world;
  Link link(world);
  Send(world, link, kMiB);
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
