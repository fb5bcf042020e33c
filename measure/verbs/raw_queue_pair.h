#ifndef HAWSER_MEASURE_VERBS_RAW_QUEUE_PAIR_H_
#define HAWSER_MEASURE_VERBS_RAW_QUEUE_PAIR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/base/socket_address.h"
#include "hawser/measure/verbs/raw_loop.h"
#include "hawser/measure/verbs/raw_plan.h"
#include "hawser/transport/fabric/fabric.h"

namespace hawser::transport {

// One queue pair, the memory that it needs for a RawPlan, and the work requests on it: what both ends have in
// common.
//
// Its receives are posted before it connects, and posted again after what the receiver sends then; there are
// twice as many as messages in flight, so a SEND always finds one. Their memory is used in turn, and what it
// contains does not matter, but for commands and reports.
// Thread:   that of its loop.
// Lifetime: the loop and the fabric outlive it. The destructor disconnects.
// Failure:  the first failure is the status of every later call. Whatever the other end does wrong is one.
class RawQueuePair final : private fabric::ConnectionHandler {
 public:
  enum class Side { kClient, kServer };

  // The plan has been checked. ResourceExhausted: there is no memory. Or an error of the fabric.
  static absl::StatusOr<std::unique_ptr<RawQueuePair>> Create(fabric::Fabric& fabric, RawLoop& loop,
                                                              const RawPlan& plan, Side side);
  ~RawQueuePair() override;

  // They start to connect. Connect() goes on until established() is true, or Turn() fails.
  absl::Status Connect(const SocketAddress& to, absl::string_view private_data);
  absl::Status Accept(fabric::ConnectRequest& request);
  bool established() const { return established_; }

  // Posts what can be posted, and takes what has completed. Waits as RawLoop::Turn() does.
  absl::Status Turn();

  // Messages received since the last call.
  uint32_t TakeReceived() { return std::exchange(received_, 0); }
  // Waits for one, of the size of `message`, and copies it there. DataLoss: there are more.
  template <typename Message>
  absl::Status ReceiveOne(Message& message) {
    return ReceiveInto(&message, sizeof(message));
  }

  // SENDs so many messages, in this turn or, when the send queue is full, a later one. DataLoss: more than
  // the depth of the plan wait for that, so the other end has sent more at once than it may.
  absl::Status Send(uint32_t count);
  // SENDs this one.
  template <typename Message>
  absl::Status SendOne(const Message& message) {
    return SendFrom(&message, sizeof(message));
  }

  // For the end whose memory the other one reaches.
  absl::StatusOr<fabric::Granted> Grant();
  // Operates on the same memory of the other end, as the plan says, until there were `most` operations, or
  // until `time` has passed; one at least. Returns how many.
  absl::StatusOr<int64_t> Operate(const fabric::Granted& on, int64_t most, absl::Duration time);
  // Once.
  absl::Status OperateOne(const fabric::Granted& on);

 private:
  static constexpr size_t kPageBytes = 4096;
  static constexpr uint32_t kChainMax = 64;
  // Between two signaled SENDs of an exchange.
  static constexpr uint32_t kSignalEvery = 16;

  struct FreePages {
    void operator()(uint8_t* pages) const { operator delete[](pages, std::align_val_t{kPageBytes}); }
  };

  RawQueuePair(RawLoop& loop, const RawPlan& plan, Side side);
  absl::Status Prepare(fabric::Fabric& fabric);
  absl::Status PostReceives();
  absl::Status PostSends();
  absl::Status PostOperations(uint32_t count, const fabric::Granted& on);
  absl::Status Take(const fabric::Completion& completion);
  absl::Status ReceiveInto(void* message, size_t size_bytes);
  absl::Status SendFrom(const void* message, size_t size_bytes);
  absl::Status Fail(absl::Status why);
  uint32_t room() const { return send_depth_ - (posted_ - retired_); }

  void OnEstablished(absl::string_view private_data) override;
  std::string OnAcceptFailed(const absl::Status& why) override { return std::string(why.message()); }
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status& why) override;

  RawLoop& loop_;
  const RawPlan plan_;
  const Side side_;
  const bool exchanges_;
  const fabric::Opcode opcode_;  // Of one-sided operations.
  const bool operates_;          // This end has them.
  const uint32_t receive_max_;   // Receives that are posted.
  const uint32_t send_depth_;

  // What is reached, or the other side of that; then the receives, `in_bytes_` each; then the message that is
  // sent.
  std::unique_ptr<uint8_t[], FreePages> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  uint32_t in_bytes_ = 0;
  std::vector<fabric::Sge> receives_, locals_;
  fabric::Sge out_;

  bool established_ = false;
  absl::Status failure_;
  uint32_t next_receive_ = 0, next_local_ = 0;
  uint32_t to_receive_ = 0;  // Receives to be posted.
  uint32_t received_ = 0;
  size_t last_received_ = 0;  // The place of the last one in receives_.
  uint32_t to_send_ = 0;
  uint32_t posted_ = 0, retired_ = 0;  // Work requests of the send queue, ever, modulo 2^32.
  uint32_t operations_done_ = 0;
  std::vector<fabric::ReceiveWorkRequest> receive_chain_;
  std::vector<fabric::SendWorkRequest> send_chain_;

  std::unique_ptr<fabric::QueuePair> queue_pair_;  // Destroyed before the memory.
};

}  // namespace hawser::transport

#endif  // HAWSER_MEASURE_VERBS_RAW_QUEUE_PAIR_H_
