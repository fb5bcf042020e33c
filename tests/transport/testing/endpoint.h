#ifndef HAWSER_TESTS_TRANSPORT_TESTING_ENDPOINT_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_ENDPOINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "hawser/transport/connection/connection.h"
#include "hawser/transport/wire/message.h"

// The two ends of a connection in a test: each records its callbacks.
namespace hawser::transport {

class RecordingObserver final : public ConnectionObserver {
 public:
  void OnReady(const Handshake& peer) override {
    ready = peer;
    if (on_ready) on_ready();
  }
  void OnSlotFree() override {
    ++slots_freed;
    if (on_slot_free) on_slot_free();
  }
  void OnGoingAway() override {
    ++going_aways;
    if (on_going_away) on_going_away();
  }
  void OnLost(const absl::Status& why) override {
    ++losses;
    lost = why;
  }
  void OnClosed(const absl::Status& why) override {
    ++closings;
    closed = why;
    if (on_closed) on_closed();
  }

  std::optional<Handshake> ready;
  int slots_freed = 0;
  int going_aways = 0;
  int losses = 0;
  int closings = 0;
  std::optional<absl::Status> lost, closed;
  std::function<void()> on_ready, on_slot_free, on_going_away, on_closed;
};

// One request that a test has sent. If Link::Send() has sent it, it may be destroyed before its end, or
// outlive the Link.
class PendingCall final : public ResponseHandler {
 public:
  PendingCall() = default;
  ~PendingCall() {
    if (proxy_ != nullptr) proxy_->call_ = nullptr;
  }
  PendingCall(const PendingCall&) = delete;

  // The connection holds this in its place.
  class Proxy final : public ResponseHandler {
   public:
    explicit Proxy(PendingCall& call) : call_(&call) {
      if (call.proxy_ != nullptr) call.proxy_->call_ = nullptr;  // It belongs to an earlier attempt.
      call.proxy_ = this;
    }
    // Either may be destroyed first.
    ~Proxy() {
      if (call_ != nullptr) call_->proxy_ = nullptr;
    }
    Proxy(const Proxy&) = delete;
    void OnResponse(absl::StatusOr<IncomingMessagePtr>&& result) override {
      if (call_ != nullptr) call_->OnResponse(std::move(result));
    }
    bool WantsRequestBack() override { return call_ != nullptr && call_->WantsRequestBack(); }
    const Landing* landing() const override { return call_ != nullptr ? call_->landing() : nullptr; }
    void OnRequestReturned(OutgoingMessagePtr request) override {
      if (call_ != nullptr) call_->OnRequestReturned(std::move(request));
    }

   private:
    friend class PendingCall;
    PendingCall* call_;
  };

  void OnResponse(absl::StatusOr<IncomingMessagePtr>&& result) override {
    ++ends;
    response = std::move(result);
    if (on_response) on_response();
  }
  bool WantsRequestBack() override { return wants_request_back; }
  const Landing* landing() const override { return into.length_bytes != 0 ? &into : nullptr; }
  void OnRequestReturned(OutgoingMessagePtr request) override { request_back = std::move(request); }

  bool done() const { return ends != 0; }
  const absl::Status& status() const { return response.status(); }

  int ends = 0;  // How often it was notified of its end.
  absl::StatusOr<IncomingMessagePtr> response = absl::UnknownError("no end yet");
  bool wants_request_back = false;
  OutgoingMessagePtr request_back;
  Landing into;  // Of length 0: there is none.
  ExchangeId id;
  std::function<void()> on_response;

 private:
  Proxy* proxy_ = nullptr;
};

// The side that answers. It calls `answer`, or, if that is not set, keeps the request until the test answers
// it.
class RecordingServer final : public RequestHandler {
 public:
  struct Request {
    ExchangeId id;
    IncomingMessagePtr message;
    int64_t deadline_ns;
  };

  void OnRequest(ExchangeId id, IncomingMessagePtr message, int64_t deadline_ns) override {
    ++request_count;
    if (answer) return answer({id, std::move(message), deadline_ns});
    requests.push_back({id, std::move(message), deadline_ns});
  }
  void OnBadRequest(ExchangeId id, const absl::Status& why) override {
    bad_requests.emplace_back(id, why);
    if (on_bad_request) on_bad_request(id);
  }
  void OnCancel(ExchangeId id, const absl::Status& why) override {
    cancelled.emplace_back(id, why);
    if (on_cancel) on_cancel(id);
  }

  uint32_t answers_behind_peer() const override { return behind_peer; }

  std::function<void(Request)> answer;
  std::function<void(ExchangeId)> on_bad_request, on_cancel;
  uint64_t request_count = 0;
  uint32_t behind_peer = 0;
  std::vector<Request> requests;
  std::vector<std::pair<ExchangeId, absl::Status>> bad_requests, cancelled;
};

// ---- Messages.

// A message whose body has exactly `body_bytes` (a multiple of 8; not 3912): nothing, or one Data as the root
// whose bytes depend on `seed`.
OutgoingMessagePtr NewMessage(MessagePool& pool, size_t body_bytes, uint32_t seed = 1);

// A message whose root is a list of Data of these sizes, each large one a segment of its own.
OutgoingMessagePtr NewMessageOfParts(MessagePool& pool, const std::vector<size_t>& part_bytes,
                                     uint32_t seed = 1);

// A message of the same content, built anew.
OutgoingMessagePtr CopyOf(MessagePool& pool, IncomingMessage& message);

// The content of a message from NewMessage(), and from NewMessageOfParts().
std::string Content(IncomingMessage& message);
std::vector<std::string> Parts(IncomingMessage& message);
// The content that NewMessage(), or NewMessageOfParts(), has written.
std::string ContentOf(size_t body_bytes, uint32_t seed = 1);
std::string PartOf(size_t part, size_t bytes, uint32_t seed = 1);

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_ENDPOINT_H_
