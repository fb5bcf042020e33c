#include "hawser/tests/transport/fabric/fabric_contract.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "hawser/tests/testing/status_matchers.h"

namespace hawser::fabric {
namespace {

constexpr uint64_t kReceiveMark = uint64_t{1} << 63;
constexpr uint64_t kRevocationMark = uint64_t{1} << 62;
constexpr uint64_t kFence = ~uint64_t{0};

}  // namespace

Endpoint::Endpoint(Fabric& fabric, CompletionQueue& completion_queue, const QueuePairOptions& options,
                   size_t memory_bytes)
    : completion_queue_(completion_queue),
      memory_(memory_bytes),
      region_(fabric.Register(memory_.data(), memory_.size()).value()),
      qp_(fabric.CreateQueuePair(completion_queue, options, news_).value()) {}

Endpoint::~Endpoint() = default;

void Endpoint::Fill(size_t offset, absl::string_view text) {
  std::memcpy(memory_.data() + offset, text.data(), text.size());
}

std::string Endpoint::Text(size_t offset, size_t length) const {
  return std::string(reinterpret_cast<const char*>(memory_.data()) + offset, length);
}

absl::Status Endpoint::Post(const SendWorkRequest& request) {
  absl::Status status = qp_->PostSend({&request, 1});
  if (status.ok()) ++sends_posted;
  return status;
}

absl::Status Endpoint::Send(uint64_t wr_id, Sge sge, bool signaled) {
  return Post({.wr_id = wr_id, .opcode = Opcode::kSend, .signaled = signaled, .sges = {&sge, 1}});
}

absl::Status Endpoint::Read(uint64_t wr_id, Sge sink, const Granted& from, int64_t offset) {
  return Post({.wr_id = wr_id,
               .opcode = Opcode::kRead,
               .signaled = true,
               .sges = {&sink, 1},
               .remote_address = from.address + static_cast<uint64_t>(offset),
               .rkey = from.rkey});
}

absl::Status Endpoint::Write(uint64_t wr_id, Sge source, const Granted& to, int64_t offset, bool signaled) {
  return Post({.wr_id = wr_id,
               .opcode = Opcode::kWrite,
               .signaled = signaled,
               .sges = {&source, 1},
               .remote_address = to.address + static_cast<uint64_t>(offset),
               .rkey = to.rkey});
}

absl::Status Endpoint::FetchAdd(uint64_t wr_id, Sge sink, const Granted& to, int64_t offset, uint64_t add) {
  return Post({.wr_id = wr_id,
               .opcode = Opcode::kFetchAdd,
               .signaled = true,
               .sges = {&sink, 1},
               .remote_address = to.address + static_cast<uint64_t>(offset),
               .rkey = to.rkey,
               .compare_add = add});
}

absl::Status Endpoint::CompareSwap(uint64_t wr_id, Sge sink, const Granted& to, int64_t offset,
                                   uint64_t compare, uint64_t swap) {
  return Post({.wr_id = wr_id,
               .opcode = Opcode::kCompareSwap,
               .signaled = true,
               .sges = {&sink, 1},
               .remote_address = to.address + static_cast<uint64_t>(offset),
               .rkey = to.rkey,
               .compare_add = compare,
               .swap = swap});
}

absl::Status Endpoint::Push(uint64_t wr_id, Sge source, const Granted& granted) {
  return Post({.wr_id = wr_id,
               .opcode = Opcode::kPush,
               .signaled = true,
               .sges = {&source, 1},
               .remote_address = granted.address,
               .rkey = granted.rkey});
}

absl::Status Endpoint::SendAndPush(uint64_t wr_id, Sge message, Sge data, const Granted& granted) {
  const SendWorkRequest requests[2] = {{.wr_id = wr_id, .sges = {&message, 1}},
                                       {.wr_id = wr_id,
                                        .opcode = Opcode::kPush,
                                        .signaled = true,
                                        .sges = {&data, 1},
                                        .remote_address = granted.address,
                                        .rkey = granted.rkey}};
  absl::Status status = qp_->PostSend(requests);
  if (status.ok()) sends_posted += 2;
  return status;
}

bool Endpoint::TakePush(uint64_t wr_id, Sge sink, const Granted& from, int64_t offset) {
  const bool taken = qp_->TakePush(wr_id, sink, from.address + static_cast<uint64_t>(offset), from.rkey);
  if (taken) ++sends_posted;
  return taken;
}

absl::Status Endpoint::Receive(uint64_t wr_id, Sge buffer) {
  const ReceiveWorkRequest request = {wr_id | kReceiveMark, buffer};
  absl::Status status = qp_->PostReceive({&request, 1});
  if (status.ok()) ++receives_posted;
  return status;
}

void Endpoint::Take(Completion completion) {
  if (completion.wr_id == kFence) {
    EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
    ++fences_;
    return;
  }
  const bool receive = (completion.wr_id & kReceiveMark) != 0;
  const bool revocation = (completion.wr_id & kRevocationMark) != 0;
  completion.wr_id &= ~(kReceiveMark | kRevocationMark);
  if (completion.status == CompletionStatus::kSuccess) {
    EXPECT_EQ(completion.opcode == Opcode::kReceive, receive);
    EXPECT_EQ(completion.opcode == Opcode::kRevoke, revocation);
  }
  (receive ? receives : revocation ? revocations : sends).push_back(completion);
}

void Endpoint::Revoke(uint64_t wr_id, uint32_t rkey) {
  ++revocations_posted;
  qp_->Revoke(rkey, wr_id | kRevocationMark);
}

Granted Endpoint::Grant(Sge range, QueuePair::Access access) {
  const Granted granted = qp_->Grant(range, access).value();
  if (!news_.established()) return granted;
  // A revocation after it completes when the grant holds: both are done in order.
  const Granted fence = qp_->Grant({range.address, 1, range.lkey}, access).value();
  poll();
  const size_t before = fences_;
  qp_->Revoke(fence.rkey, kFence);
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (fences_ == before && absl::Now() < deadline) poll();
  EXPECT_GT(fences_, before) << "a grant was not carried out";
  return granted;
}

FabricWorld::FabricWorld(const FabricUnderTest& under_test) : fabric_(under_test.create()) {
  for (int i = 0; i < 2; ++i) completion_queues_.push_back(fabric_->CreateCompletionQueue(1024).value());
  listener_ = fabric_->Listen(completion_queue(1), under_test.listen_address, requests_).value();
}

// As the contract wants it: disconnected, and everything back, before anything is destroyed.
FabricWorld::~FabricWorld() {
  for (const auto& endpoint : endpoints_) {
    if (endpoint->has_qp()) endpoint->qp().Disconnect();
  }
  PollSome(3);
}

Endpoint& FabricWorld::NewEndpoint(size_t queue, const QueuePairOptions& options, size_t memory_bytes) {
  endpoints_.push_back(std::make_unique<Endpoint>(*fabric_, completion_queue(queue), options, memory_bytes));
  endpoints_.back()->poll = [this] { PollOnce(); };
  return *endpoints_.back();
}

FabricWorld::Pair FabricWorld::Connect(const QueuePairOptions& options, size_t memory_bytes) {
  Endpoint& a = NewEndpoint(0, options, memory_bytes);
  Endpoint& b = NewEndpoint(1, options, memory_bytes);
  Connect(a, b);
  return {a, b};
}

void FabricWorld::Connect(Endpoint& a, Endpoint& b) {
  ASSERT_THAT(a.qp().Connect(listener_->address(), ""), IsOk());
  HAWSER_UNTIL(*this, !requests_.requests.empty());
  std::unique_ptr<ConnectRequest> request = std::move(requests_.requests.back());
  requests_.requests.pop_back();
  ASSERT_THAT(b.qp().Accept(*request, ""), IsOk())
      << "connection " << endpoints_.size() / 2 << "; the requester: " << a.news().why.ToString();
  HAWSER_UNTIL(*this, a.news().established() && b.news().established());
}

void FabricWorld::ExpectEverythingComesBack(Endpoint& endpoint) {
  endpoint.qp().Disconnect();
  HAWSER_UNTIL(*this, endpoint.sends.size() == endpoint.sends_posted &&
                          endpoint.receives.size() == endpoint.receives_posted &&
                          endpoint.revocations.size() == endpoint.revocations_posted);
  PollSome(20);
  EXPECT_EQ(endpoint.sends.size(), endpoint.sends_posted);
  EXPECT_EQ(endpoint.receives.size(), endpoint.receives_posted);
  EXPECT_EQ(endpoint.revocations.size(), endpoint.revocations_posted);
}

bool FabricWorld::PollBefore(absl::Time give_up, const char* what) {
  if (absl::Now() < give_up) {
    PollOnce();
    return true;
  }
  std::string what_ended;
  for (const auto& endpoint : endpoints_) {
    if (!endpoint->news().why.ok()) absl::StrAppend(&what_ended, "; ", endpoint->news().why.ToString());
  }
  ADD_FAILURE() << "waited in vain for: " << what << what_ended;
  return false;
}

void FabricWorld::PollSome(int rounds) {
  for (int i = 0; i < rounds; ++i) PollOnce();
}

void FabricWorld::PollOnce() {
  Completion completions[16];
  for (const auto& queue : completion_queues_) {
    const size_t count = queue->Poll(absl::MakeSpan(completions));
    for (size_t i = 0; i < count; ++i) {
      const Completion& completion = completions[i];
      const auto owner = std::find_if(endpoints_.begin(), endpoints_.end(), [&](const auto& endpoint) {
        return endpoint->has_qp() && endpoint->qp().qp_num() == completion.qp_num;
      });
      if (owner == endpoints_.end()) {
        strays.push_back(completion);
      } else {
        (*owner)->Take(completion);
      }
    }
  }
}

}  // namespace hawser::fabric
