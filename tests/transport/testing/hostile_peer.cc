#include "hawser/tests/transport/testing/hostile_peer.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <utility>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/testing/test_fabric.h"

namespace hawser::transport {
namespace {

// The peer's memory: buffers to receive into, buffers to send from, and a part that the other side may READ.
constexpr size_t kBuffer = 4096;
constexpr size_t kReceives = 128;
constexpr size_t kSends = 512;
constexpr size_t kReadable = 16 << 20;
constexpr size_t kMemory = (kReceives + kSends) * kBuffer + kReadable;

constexpr uint64_t kSendId = uint64_t{1} << 32;

}  // namespace

HostilePeer::HostilePeer(World& world, uint32_t read_depth, std::shared_ptr<fabric::Fabric> fabric)
    : world_(world),
      fabric_(fabric != nullptr ? std::move(fabric) : NewTestFabric()),
      memory_(static_cast<uint8_t*>(aligned_alloc(4096, kMemory))),
      region_(*fabric_->Register(memory_, kMemory)),
      completion_queue_(*fabric_->CreateCompletionQueue(1024)) {
  memset(memory_, 0, kMemory);
  fabric::QueuePairOptions options;
  options.send_depth = kSends;
  options.receive_depth = kReceives;
  options.read_depth = read_depth;
  queue_pair_ = *fabric_->CreateQueuePair(*completion_queue_, options, *this);
  PostReceives();
  world_.others.push_back([this] { return Turn(); });
}

HostilePeer::~HostilePeer() {
  request_.reset();
  listener_.reset();
  queue_pair_->Disconnect();
  for (int i = 0; i < 10; ++i) Turn();
  world_.others.pop_back();  // A stage has one hostile peer.
  queue_pair_.reset();
  completion_queue_.reset();
  region_.reset();
  free(memory_);
}

Handshake HostilePeer::Hello(Role role) {
  Handshake hello;
  hello.role = role;
  hello.slots = 4;
  hello.receive_buffer_bytes = kBuffer;
  hello.message_bytes_max = 64 << 20;
  return hello;
}

void HostilePeer::PostReceives() {
  for (size_t i = 0; i < kReceives; ++i) {
    const fabric::ReceiveWorkRequest receive = {i, {memory_ + i * kBuffer, kBuffer, region_->lkey()}};
    ASSERT_THAT(queue_pair_->PostReceive({&receive, 1}), IsOk());
  }
}

void HostilePeer::Dial(const SocketAddress& address, absl::string_view private_data) {
  const absl::Status status = queue_pair_->Connect(address, private_data);
  ASSERT_THAT(status, IsOk());
}

SocketAddress HostilePeer::Listen(std::optional<std::string> private_data) {
  answer_ = std::move(private_data);
  listener_ = *fabric_->Listen(*completion_queue_, TestAddress(), *this);
  return listener_->address();
}

void HostilePeer::OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) {
  private_data_ = std::string(request->private_data());
  request_ = std::move(request);
  if (answer_.has_value()) Accept(*answer_);
}

void HostilePeer::Accept(absl::string_view private_data) {
  const absl::Status status = queue_pair_->Accept(*request_, private_data);
  ASSERT_THAT(status, IsOk());
  request_.reset();
}

void HostilePeer::Send(absl::string_view message, uint32_t ends_rkey) {
  ASSERT_LE(message.size(), kBuffer);
  uint8_t* const at = memory_ + (kReceives + sends_++ % kSends) * kBuffer;
  memcpy(at, message.data(), message.size());
  const fabric::Sge sge = {at, static_cast<uint32_t>(message.size()), region_->lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kSendId;
  request.signaled = true;
  request.sges = {&sge, 1};
  request.rkey = ends_rkey;
  // On an error the other side has already closed the connection, as the test expects.
  queue_pair_->PostSend({&request, 1}).IgnoreError();
}

TableEntry HostilePeer::Grant(uint32_t size_bytes) {
  const absl::StatusOr<fabric::Granted> granted =
      queue_pair_->Grant({readable(), size_bytes, region_->lkey()}, fabric::QueuePair::Access::kRead);
  EXPECT_THAT(granted, IsOk());
  const auto [address, rkey] = granted.value_or(fabric::Granted());
  return {address, rkey, size_bytes};
}

uint8_t* HostilePeer::readable() { return memory_ + kMemory - kReadable; }

void HostilePeer::Post(fabric::Opcode opcode, const TableEntry& entry) {
  const fabric::Sge sge = {readable(), static_cast<uint32_t>(entry.length_bytes), region_->lkey()};
  fabric::SendWorkRequest request;
  request.wr_id = kSendId;
  request.opcode = opcode;
  request.signaled = true;
  request.sges = {&sge, 1};
  request.remote_address = entry.address;
  request.rkey = entry.rkey;
  const absl::Status status = queue_pair_->PostSend({&request, 1});
  ASSERT_THAT(status, IsOk());
}

void HostilePeer::Disconnect() { queue_pair_->Disconnect(); }

size_t HostilePeer::Turn() {
  fabric::Completion completions[64];
  const size_t count = completion_queue_->Poll(absl::MakeSpan(completions));
  for (size_t i = 0; i < count; ++i) {
    const fabric::Completion& completion = completions[i];
    // If this side caused the end, some fabrics report it only by a completion.
    if (completion.status != fabric::CompletionStatus::kSuccess) {
      ended_ = true;
    } else if (completion.opcode == fabric::Opcode::kRead) {
      ++reads_;
    }
    if (completion.wr_id == kSendId || completion.status != fabric::CompletionStatus::kSuccess) continue;
    uint8_t* const at = memory_ + completion.wr_id * kBuffer;
    received_.emplace_back(reinterpret_cast<const char*>(at), completion.byte_len);
    if (!receiving_) continue;
    const fabric::ReceiveWorkRequest receive = {completion.wr_id, {at, kBuffer, region_->lkey()}};
    queue_pair_->PostReceive({&receive, 1}).IgnoreError();
  }
  return count;
}

void HostilePeer::OnEstablished(absl::string_view private_data) {
  established_ = true;
  if (!private_data.empty()) private_data_ = std::string(private_data);
}

void HostilePeer::OnConnectFailed(const absl::Status& why, absl::string_view private_data) {
  ended_ = true;
  why_ = why;
  private_data_ = std::string(private_data);
}

void HostilePeer::OnDisconnected(const absl::Status& why) {
  ended_ = true;
  why_ = why;
}

}  // namespace hawser::transport
