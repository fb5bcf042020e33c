#ifndef HAWSER_TESTS_TRANSPORT_FABRIC_FABRIC_CONTRACT_H_
#define HAWSER_TESTS_TRANSPORT_FABRIC_FABRIC_CONTRACT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/transport/fabric/fabric.h"

// The stage for tests of a fabric: two or more endpoints in one process, polled by turns on one thread.
// Nothing here knows which fabric it is.
namespace hawser::fabric {

// How the contract test gets at a fabric.
struct FabricUnderTest {
  std::string name;
  std::function<std::shared_ptr<Fabric>()> create;
  SocketAddress listen_address;  // Port 0.

  // What a device, or its driver, is known not to do as the contract wants it. Nothing is set for a NIC that
  // its driver does not say.
  struct Shortcomings {
    bool grants_are_not_confined = false;  // rxe: a window's bounds are not looked at, only its region's.
    bool codes_are_not_exact = false;      // A failure is one, but called by another name.
    bool rkeys_are_for_everybody = false;  // No windows: an rkey is good for every queue pair of the process.
    bool rnr_is_not_waited_for = false;    // iWARP has no RNR: a SEND without a receive ends the connection.
    bool read_has_one_sge = false;         // iWARP
    bool a_read_may_cut_a_word = false;    // iWARP: packets end anywhere, and each is filled at its own time.
    bool requester_is_not_told = false;  // siw: a refused READ or WRITE ends the connection, and that is all.
    bool refusals_overtake_reads = false;      // siw: a refusal drops the READ answers that wait before it.
    bool dialer_is_not_told_depths = false;    // erdma: its driver leaves the READ depths out of the answer.
    bool a_read_goes_on_when_revoked = false;  // siw: it sees what is in the memory later.
    size_t connections_max = 200;  // siw: libsiw takes the 145th mapping of a process for an error (0x90000).
  };
  Shortcomings shortcomings;
  bool pushes = false;  // See QueuePair::push_bytes_max().
  // Fabric::sends_can_wait(); then receives can be withdrawn, too.
  bool sends_can_wait = false;
  bool posts_inline = false;  // See QueuePair::PostInline().
  bool offers_sends = false;  // See ConnectionHandler::TakeSend().
  // The addresses of its grants are those of the memory, as a NIC needs them. Others never tell them.
  bool real_addresses = false;
  // The keys that the device has, or had, for memory that contains `address`, newest last: no peer is told
  // them, but one can guess them. Null: there is no device.
  std::function<std::vector<uint32_t>(const uint8_t* address)> device_keys;
  // GrantKind::kShared: a grant to READ is for every peer and for the whole region, and its revocation does
  // not revoke. Only the tests that are about grants run, since all else is the same.
  bool grants_are_shared = false;
  // It runs in a guest, which is emulated. Then tests repeat less often what each repetition shows as well,
  // and move fewer bytes.
  bool emulated = false;
  bool atomics = false;  // Fabric::atomics() is not kNone.
};

// Those that a test binary is for: each defines this.
std::vector<FabricUnderTest> FabricsUnderTest();

// So that a failing test names the fabric.
inline void PrintTo(const FabricUnderTest& under_test, std::ostream* out) { *out << under_test.name; }

// What a connection's handler was told, in order: "established", "failed", "disconnected".
class NewsRecorder : public ConnectionHandler {
 public:
  void OnEstablished(absl::string_view private_data) override {
    told.push_back("established");
    accept_data = std::string(private_data);
  }
  std::string OnAcceptFailed(const absl::Status& status) override {
    return "no: " + std::string(status.message());
  }
  void OnConnectFailed(const absl::Status& status, absl::string_view private_data) override {
    told.push_back("failed");
    why = status;
    reject_data = std::string(private_data);
  }
  void OnDisconnected(const absl::Status& status) override {
    told.push_back("disconnected");
    why = status;
    if (on_disconnected) on_disconnected();
  }

  bool established() const { return !told.empty() && told.front() == "established"; }
  bool ended() const { return !told.empty() && told.back() != "established"; }

  bool TakeSend(absl::Span<const uint8_t> message) override {
    return take_send && take_send({reinterpret_cast<const char*>(message.data()), message.size()});
  }

  std::function<void()> on_disconnected;
  std::function<bool(absl::string_view message)> take_send;
  std::vector<std::string> told;
  absl::Status why;
  std::string accept_data;
  std::string reject_data;
};

class RequestRecorder : public ListenHandler {
 public:
  void OnConnectRequest(std::unique_ptr<ConnectRequest> request) override {
    requests.push_back(std::move(request));
  }
  std::vector<std::unique_ptr<ConnectRequest>> requests;
};

// One side of a connection: a queue pair, registered memory, and what came back.
class Endpoint {
 public:
  Endpoint(Fabric& fabric, CompletionQueue& completion_queue, const QueuePairOptions& options,
           size_t memory_bytes);
  ~Endpoint();

  CompletionQueue& completion_queue() { return completion_queue_; }
  bool has_qp() const { return qp_ != nullptr; }
  QueuePair& qp() { return *qp_; }
  NewsRecorder& news() { return news_; }
  uint8_t* memory() { return memory_.data(); }
  size_t memory_bytes() const { return memory_.size(); }
  Sge At(size_t offset, uint32_t length) { return {memory_.data() + offset, length, region_->lkey()}; }
  void Fill(size_t offset, absl::string_view text);
  std::string Text(size_t offset, size_t length) const;

  // One work request each. The opcode is in the name.
  absl::Status Send(uint64_t wr_id, Sge sge, bool signaled = true);
  // `offset`: of the first byte, in what the peer has granted.
  absl::Status Read(uint64_t wr_id, Sge sink, const Granted& from, int64_t offset = 0);
  absl::Status Write(uint64_t wr_id, Sge source, const Granted& to, int64_t offset = 0, bool signaled = true);
  absl::Status FetchAdd(uint64_t wr_id, Sge sink, const Granted& to, int64_t offset, uint64_t add);
  absl::Status CompareSwap(uint64_t wr_id, Sge sink, const Granted& to, int64_t offset, uint64_t compare,
                           uint64_t swap);
  // `source`: all that is granted by `granted`.
  absl::Status Push(uint64_t wr_id, Sge source, const Granted& granted);
  // A SEND, not signaled, and behind it a push, signaled, in one call.
  absl::Status SendAndPush(uint64_t wr_id, Sge message, Sge data, const Granted& granted);
  bool TakePush(uint64_t wr_id, Sge sink, const Granted& from, int64_t offset = 0);
  absl::Status Receive(uint64_t wr_id, Sge buffer);
  // Of which the peer may make use at once, though it learns of it by no SEND.
  Granted Grant(Sge range, QueuePair::Access access);
  void Revoke(uint64_t wr_id, uint32_t rkey);

  // What came back so far, receives apart (told apart by wr_id: after an error the opcode is undefined).
  std::vector<Completion> sends;
  std::vector<Completion> receives;
  std::vector<Completion> revocations;
  size_t sends_posted = 0;  // By the calls above.
  size_t receives_posted = 0;
  size_t revocations_posted = 0;
  void Take(Completion completion);

  // Polls all completion queues: the world's.
  std::function<void()> poll;

  // Deletes the queue pair early.
  void Destroy() { qp_.reset(); }

 private:
  absl::Status Post(const SendWorkRequest& request);

  size_t fences_ = 0;
  CompletionQueue& completion_queue_;
  std::vector<uint8_t> memory_;
  std::unique_ptr<MemoryRegion> region_;
  NewsRecorder news_;
  std::unique_ptr<QueuePair> qp_;
};

// How long a test waits for a condition at most.
constexpr absl::Duration kPatience = absl::Seconds(20);

// The endpoints of a test and the loop that polls them.
class FabricWorld {
 public:
  explicit FabricWorld(const FabricUnderTest& under_test);
  ~FabricWorld();

  Fabric& fabric() { return *fabric_; }
  CompletionQueue& completion_queue(size_t i = 0) { return *completion_queues_[i]; }  // Two of them.
  Listener& listener() { return *listener_; }
  void CloseListener() { listener_.reset(); }
  RequestRecorder& requests() { return requests_; }

  // By default the requester lives on completion queue 0, the responder, like the listener, on 1.
  Endpoint& NewEndpoint(size_t completion_queue, const QueuePairOptions& options = {},
                        size_t memory_bytes = 64 * 1024);
  struct Pair {
    Endpoint& a;  // The requester.
    Endpoint& b;
  };
  Pair Connect(const QueuePairOptions& options = {}, size_t memory_bytes = 64 * 1024);
  // `a` connects, `b` accepts; until both are established.
  void Connect(Endpoint& a, Endpoint& b);

  // Disconnects it and waits until every work request it ever posted, bar unsignaled sends that succeeded, is
  // back.
  void ExpectEverythingComesBack(Endpoint& endpoint);

  // Polls all completion queues once. False: it is later than `give_up`, and the test has failed, because it
  // waits for `what` in vain.
  bool PollBefore(absl::Time give_up, const char* what);
  // For what must not happen: a number of polls that would have brought it about.
  void PollSome(int rounds = 200);
  void PollOnce();

  std::vector<Completion> strays;  // Of queue pairs that are no endpoint's.

 private:
  std::shared_ptr<Fabric> fabric_;
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues_;
  RequestRecorder requests_;
  std::unique_ptr<Listener> listener_;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
};

// Polls all completion queues until `condition`; fails the test if that takes longer than kPatience. A loop,
// because clang 14 has no lambda that captures structured bindings.
#define HAWSER_UNTIL(world, condition)                                              \
  for (const absl::Time hawser_give_up = absl::Now() + ::hawser::fabric::kPatience; \
       !(condition) && (world).PollBefore(hawser_give_up, #condition);)

MATCHER_P2(CompletionIs, wr_id, status, "") {
  *result_listener << "wr_id " << arg.wr_id << ", " << std::string(Describe(arg.status));
  return arg.wr_id == static_cast<uint64_t>(wr_id) && arg.status == status;
}

MATCHER_P(HasCode, code, "") {
  *result_listener << arg.ToString();
  return arg.code() == code;
}

}  // namespace hawser::fabric

#endif  // HAWSER_TESTS_TRANSPORT_FABRIC_FABRIC_CONTRACT_H_
