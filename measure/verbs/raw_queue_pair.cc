#include "hawser/measure/verbs/raw_queue_pair.h"

#include <string.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/base/peer_text.h"

namespace hawser::transport {
namespace {

using fabric::CompletionStatus;
using fabric::Opcode;

// What the memory contains that is sent or READ.
constexpr uint8_t kByte = 'f';
// Commands and reports: one is in flight.
constexpr uint32_t kMessagesOfReads = 1;

// The end with this role operates on memory of the other one.
bool Operates(const RawPlan& plan, RawQueuePair::Side side) {
  return (plan.kind == RawPlan::Kind::kServerReads) == (side == RawQueuePair::Side::kServer);
}

Opcode OpcodeOf(RawPlan::Kind kind) {
  switch (kind) {
    case RawPlan::Kind::kClientWrites:
      return Opcode::kWrite;
    case RawPlan::Kind::kClientFetchAdds:
      return Opcode::kFetchAdd;
    default:
      return Opcode::kRead;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<RawQueuePair>> RawQueuePair::Create(fabric::Fabric& fabric, RawLoop& loop,
                                                                   const RawPlan& plan, Side side) {
  std::unique_ptr<RawQueuePair> made(new RawQueuePair(loop, plan, side));
  if (absl::Status status = made->Prepare(fabric); !status.ok()) return status;
  return made;
}

RawQueuePair::RawQueuePair(RawLoop& loop, const RawPlan& plan, Side side)
    : loop_(loop),
      plan_(plan),
      side_(side),
      exchanges_(plan.kind == RawPlan::Kind::kExchange),
      opcode_(OpcodeOf(plan.kind)),
      operates_(!exchanges_ && Operates(plan, side)),
      receive_max_(2 * (exchanges_ ? plan.depth : kMessagesOfReads)),
      send_depth_(2 * plan.depth + 4 * kSignalEvery) {}

RawQueuePair::~RawQueuePair() {
  if (queue_pair_ != nullptr) queue_pair_->Disconnect();
}

absl::Status RawQueuePair::Prepare(fabric::Fabric& fabric) {
  const bool client = side_ == Side::kClient;
  const uint64_t in = exchanges_ ? (client ? plan_.answer_bytes : plan_.bytes)
                                 : (client ? sizeof(RawReport) : sizeof(RawCommand));
  const uint64_t out = exchanges_ ? (client ? plan_.bytes : plan_.answer_bytes)
                                  : (client ? sizeof(RawCommand) : sizeof(RawReport));
  const uint32_t receives = exchanges_ ? plan_.depth : receive_max_;
  const uint64_t reached = exchanges_ ? 0 : (operates_ ? plan_.depth : 1) * plan_.bytes;
  const uint64_t total = reached + receives * in + out;
  memory_.reset(static_cast<uint8_t*>(operator new[](static_cast<size_t>(total), std::align_val_t{kPageBytes},
                                                     std::nothrow)));
  if (memory_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory of ", total, " bytes for a raw queue pair"));
  }
  memset(memory_.get(), kByte, total);
  auto region = fabric.Register(memory_.get(), total);
  if (!region.ok()) return region.status();
  region_ = *std::move(region);
  uint8_t* next = memory_.get();
  const auto take = [&](uint64_t bytes) {
    const fabric::Sge sge = {
        .address = next, .length = static_cast<uint32_t>(bytes), .lkey = region_->lkey()};
    next += bytes;
    return sge;
  };
  if (!exchanges_) {
    for (uint64_t at = 0; at < reached; at += plan_.bytes) locals_.push_back(take(plan_.bytes));
  }
  for (uint32_t i = 0; i < receives; ++i) receives_.push_back(take(in));
  out_ = take(out);
  in_bytes_ = static_cast<uint32_t>(in);

  fabric::QueuePairOptions options;
  options.send_depth = send_depth_;
  options.receive_depth = receive_max_;
  auto made = fabric.CreateQueuePair(loop_.completion_queue(), options, *this);
  if (!made.ok()) return made.status();
  queue_pair_ = *std::move(made);
  to_receive_ = receive_max_;
  return PostReceives();
}

absl::Status RawQueuePair::Connect(const SocketAddress& to, absl::string_view private_data) {
  return queue_pair_->Connect(to, private_data);
}

absl::Status RawQueuePair::Accept(fabric::ConnectRequest& request) {
  return queue_pair_->Accept(request, "");
}

absl::Status RawQueuePair::Turn() {
  if (!failure_.ok()) return failure_;
  if (absl::Status status = PostReceives(); !status.ok()) return status;
  if (absl::Status status = PostSends(); !status.ok()) return status;
  const auto completions = loop_.Turn();
  if (!completions.ok()) return Fail(completions.status());
  for (const fabric::Completion& each : *completions) {
    if (absl::Status status = Take(each); !status.ok()) return status;
  }
  return failure_;
}

absl::Status RawQueuePair::Take(const fabric::Completion& completion) {
  if (completion.status != CompletionStatus::kSuccess) {
    return Fail(absl::UnavailableError(
        absl::StrCat("the raw queue pair has failed: ", fabric::Describe(completion.status))));
  }
  if (completion.opcode != Opcode::kReceive) {
    if (completion.opcode == opcode_) ++operations_done_;
    retired_ = static_cast<uint32_t>(completion.wr_id);
    return absl::OkStatus();
  }
  if (completion.byte_len != in_bytes_) {
    return Fail(absl::DataLossError(absl::StrCat("the other end of the raw queue pair sent ",
                                                 completion.byte_len, " bytes in place of ", in_bytes_)));
  }
  last_received_ = static_cast<size_t>(completion.wr_id);
  ++received_;
  ++to_receive_;
  return absl::OkStatus();
}

absl::Status RawQueuePair::PostReceives() {
  if (to_receive_ == 0) return absl::OkStatus();
  receive_chain_.clear();
  for (; to_receive_ > 0; --to_receive_) {
    receive_chain_.push_back({.wr_id = next_receive_, .buffer = receives_[next_receive_]});
    next_receive_ = (next_receive_ + 1) % static_cast<uint32_t>(receives_.size());
  }
  const absl::Status posted = queue_pair_->PostReceive(receive_chain_);
  return posted.ok() ? posted : Fail(posted);
}

absl::Status RawQueuePair::Send(uint32_t count) {
  to_send_ += count;
  if (to_send_ > plan_.depth) {
    return Fail(absl::DataLossError("the other end of the raw queue pair has more in flight than it said"));
  }
  return PostSends();
}

absl::Status RawQueuePair::PostSends() {
  while (to_send_ > 0) {
    const uint32_t count = std::min({to_send_, room(), kChainMax});
    if (count == 0) return absl::OkStatus();
    send_chain_.clear();
    for (uint32_t i = 0; i < count; ++i) {
      ++posted_;
      send_chain_.push_back({.wr_id = posted_,
                             .opcode = Opcode::kSend,
                             .signaled = !exchanges_ || posted_ % kSignalEvery == 0,
                             .sges = {&out_, 1}});
    }
    if (absl::Status posted = queue_pair_->PostSend(send_chain_); !posted.ok()) return Fail(posted);
    to_send_ -= count;
  }
  return absl::OkStatus();
}

absl::Status RawQueuePair::PostOperations(uint32_t count, const fabric::Granted& on) {
  send_chain_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    ++posted_;
    send_chain_.push_back({.wr_id = posted_,
                           .opcode = opcode_,
                           .signaled = true,
                           .sges = {&locals_[next_local_], 1},
                           .remote_address = on.address,
                           .rkey = on.rkey,
                           .compare_add = 1});
    next_local_ = (next_local_ + 1) % static_cast<uint32_t>(locals_.size());
  }
  const absl::Status posted = queue_pair_->PostSend(send_chain_);
  return posted.ok() ? posted : Fail(posted);
}

absl::StatusOr<fabric::Granted> RawQueuePair::Grant() {
  const auto access = opcode_ == Opcode::kWrite      ? fabric::QueuePair::Access::kWrite
                      : opcode_ == Opcode::kFetchAdd ? fabric::QueuePair::Access::kAtomic
                                                     : fabric::QueuePair::Access::kRead;
  return queue_pair_->Grant(locals_[0], access);
}

absl::StatusOr<int64_t> RawQueuePair::Operate(const fabric::Granted& on, int64_t most, absl::Duration time) {
  const bool reads = opcode_ == Opcode::kRead;
  const uint32_t depth_max = opcode_ == Opcode::kWrite ? plan_.depth : queue_pair_->read_depth();
  const int64_t depth = std::clamp<uint32_t>(depth_max, 1, plan_.depth);
  const int64_t end_ns = After(fabric::MonotonicNs(), time);
  int64_t posted = 0, done = 0;
  operations_done_ = 0;
  bool more = true;
  // As for a message of many READs: the region has the sinks first.
  const uint64_t locals_bytes = locals_.size() * uint64_t{locals_[0].length};
  if (reads) queue_pair_->OpenSink(locals_[0].address, locals_bytes);
  while (more || done < posted) {
    if (more) {
      const int64_t count = std::min(depth - (posted - done), most - posted);
      if (count > 0) {
        absl::Status status = PostOperations(static_cast<uint32_t>(count), on);
        if (!status.ok()) return status;
        posted += count;
      }
    }
    if (absl::Status status = Turn(); !status.ok()) return status;
    if (const uint32_t ended = std::exchange(operations_done_, 0); ended > 0) {
      done += ended;
      more = more && posted < most && fabric::MonotonicNs() < end_ns;
    }
  }
  if (reads && !queue_pair_->CloseSink(locals_[0].address))
    return Fail(absl::InternalError("a sink of READs stays writable"));
  return done;
}

absl::Status RawQueuePair::OperateOne(const fabric::Granted& on) {
  operations_done_ = 0;
  absl::Status status = PostOperations(1, on);
  while (status.ok() && operations_done_ == 0) status = Turn();
  return status;
}

absl::Status RawQueuePair::ReceiveInto(void* message, size_t size_bytes) {
  while (received_ == 0) {
    if (absl::Status status = Turn(); !status.ok()) return status;
  }
  if (TakeReceived() != 1 || size_bytes != in_bytes_) {
    return Fail(absl::DataLossError("the other end of the raw queue pair sent what it was not asked for"));
  }
  memcpy(message, receives_[last_received_].address, size_bytes);
  return absl::OkStatus();
}

absl::Status RawQueuePair::SendFrom(const void* message, size_t size_bytes) {
  while (retired_ != posted_) {  // The fabric owns the memory until then.
    if (absl::Status status = Turn(); !status.ok()) return status;
  }
  memcpy(out_.address, message, size_bytes);
  return Send(1);
}

absl::Status RawQueuePair::Fail(absl::Status why) {
  if (failure_.ok()) failure_ = std::move(why);
  return failure_;
}

void RawQueuePair::OnEstablished(absl::string_view) {
  established_ = true;
  loop_.OnEvent();
}

void RawQueuePair::OnConnectFailed(const absl::Status& why, absl::string_view private_data) {
  loop_.OnEvent();
  // The peer wrote the text, and the connection managers of some networks pad it with zeros.
  const std::string text = EscapePeerText(private_data.substr(0, private_data.find('\0')));
  Fail(text.empty() ? why
                    : absl::Status(why.code(), absl::StrCat(absl::string_view(why.message()), ": ", text)))
      .IgnoreError();
}

void RawQueuePair::OnDisconnected(const absl::Status& why) {
  loop_.OnEvent();
  Fail(why).IgnoreError();
}

}  // namespace hawser::transport
