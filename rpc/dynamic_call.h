#ifndef HAWSER_RPC_DYNAMIC_CALL_H_
#define HAWSER_RPC_DYNAMIC_CALL_H_

// A call of a method that the program knows from a schema at run time:
//
//   const capnp::InterfaceSchema pages = capnp::Schema::from<Pages>();  // Or from a capnp::SchemaLoader.
//   auto call = hawser::DynamicCall::Create(channel, pages.getMethodByName("read"));
//   if (!call.ok()) return call.status();
//   call->request().set("number", number);
//   absl::StatusOr<hawser::Reply<capnp::DynamicStruct>> reply = call->Send().Wait();
//   if (!reply.ok()) return reply.status();
//   const auto page = (*reply)->get("page").as<capnp::Data>();

#include <capnp/dynamic.h>
#include <capnp/schema.h>
#include <kj/string.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/call.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/trace.h"

namespace hawser {

// Calls of methods whose types are known at run time only: for gateways and tools. The schema comes from a
// capnp::SchemaLoader or, with capnp::Schema::from<KeyValue>(), from generated code. Whatever owns it
// outlives the call and its reply. A call whose types the compiler knows is a Call (rpc/call.h): it is
// faster, and mistakes do not compile.
//
// Do not call with a schema of a peer that may lie before it was checked. Loading it is no check:
// capnp::SchemaLoader of Cap'n Proto 0.9 takes schemas whose fields or groups lie outside of their struct,
// and request().set() then writes behind the message. rpc/hawser/reflection.capnp lists what to check, and
// tools/hawser/schemas.h does it.

// "kv.capnp:KeyValue": an interface, as errors and the log name it. The name is escaped: a peer may have sent
// the schema.
std::string NameOf(capnp::InterfaceSchema interface);

// The Method of a schema. Its name is kept until the process ends, because the log of a poller may quote it
// at any later time. So no more than kDynamicNamesMax different names are kept, cut at kDynamicNameBytesMax;
// beyond that a method is called "a method of a dynamic call".
inline constexpr size_t kDynamicNamesMax = 4096;
inline constexpr size_t kDynamicNameBytesMax = 256;
Method MethodOf(capnp::InterfaceSchema::Method method);

// As a PendingCall, without co_await.
class [[nodiscard]] PendingDynamicCall {
 public:
  PendingDynamicCall(PendingDynamicCall&&) noexcept = default;
  PendingDynamicCall& operator=(PendingDynamicCall&&) = delete;
  ~PendingDynamicCall() {
    if (call_ && !taken_) call_.Drop();
  }

  // As PendingCall::Wait(), Then(), Forget() and Cancel(). Call one of the first three, once; a second one is
  // a CHECK.
  absl::StatusOr<Reply<capnp::DynamicStruct>> Wait();
  template <typename Callback>
  PendingDynamicCall& Then(Callback callback) {
    Take();
    call_.Then([callback = std::move(callback), results = results_](
                   absl::StatusOr<transport::IncomingMessagePtr>&& result, const ReadLimits& limits) mutable {
      callback(Typed(std::move(result), limits, results));
    });
    return *this;
  }
  void Forget() {
    Take();
    call_.Then([](absl::StatusOr<transport::IncomingMessagePtr>&&, const ReadLimits&) {});
  }
  void Cancel() {
    if (call_) call_.Cancel();
  }

 private:
  friend class DynamicCall;
  PendingDynamicCall(internal::CallHandle call, capnp::StructSchema results)
      : call_(std::move(call)), results_(results) {}

  static absl::StatusOr<Reply<capnp::DynamicStruct>> Typed(
      absl::StatusOr<transport::IncomingMessagePtr>&& result, const ReadLimits& limits,
      capnp::StructSchema results);
  void Take();

  internal::CallHandle call_;
  capnp::StructSchema results_;
  bool taken_ = false;
};

// As a Call: fill request(), then Send(). Move-only.
class [[nodiscard]] DynamicCall {
 public:
  // InvalidArgument: Cap'n Proto finds the types of the method to be unusable, as those of a peer can be. If
  // `channel` is null, the call ends as a Call without a channel does.
  static absl::StatusOr<DynamicCall> Create(const std::shared_ptr<Channel>& channel,
                                            capnp::InterfaceSchema::Method method,
                                            const CallOptions& options = CallOptions::kNone);
  DynamicCall(DynamicCall&&) noexcept = default;
  DynamicCall& operator=(DynamicCall&&) = delete;

  // Throws kj::Exception at its caller, as Cap'n Proto's builders do, also for a field that the schema does
  // not have and for a value of another type. CHECK: the call was sent, or moved from.
  capnp::DynamicStruct::Builder& request() {
    CheckUnsent();
    return request_;
  }

  // As Call::Attach(), and makes it the field `name` of `into`, which is request() or a struct inside it:
  // call.Attach(call.request(), "value", std::move(buffer)). InvalidArgument: `into` has no such field, or it
  // is no Data. Afterwards only Readers of the field work, because the memory is not the message's. Why not
  // an orphan, as Call::Attach(): Cap'n Proto's DynamicStruct adopts only what it may change.
  absl::Status Attach(capnp::DynamicStruct::Builder into, kj::StringPtr name, Buffer buffer);
  absl::Status Attach(capnp::DynamicStruct::Builder into, kj::StringPtr name, capnp::Data::Reader bytes,
                      std::shared_ptr<const void> owner);

  // As those of Call.
  void ReceiveInto(absl::Span<uint8_t> buffer) {
    CheckUnsent();
    call_.ReceiveInto(buffer);
  }
  void SetSpanAttribute(absl::string_view key, const SpanValue& value) {
    CheckUnsent();
    call_.SetSpanAttribute(key, value);
  }
  PendingDynamicCall Send();

 private:
  DynamicCall(internal::CallHandle call, const char* method_name, capnp::StructSchema params,
              capnp::StructSchema results);
  void CheckUnsent() const {
    if (!call_) [[unlikely]]
      internal::Misused(
          "request(), Attach(), ReceiveInto(), SetSpanAttribute() or Send() on a DynamicCall that was sent, "
          "or "
          "moved from",
          method_name_);
  }

  internal::CallHandle call_;
  const char* method_name_;  // Also once call_ is gone.
  capnp::StructSchema results_;
  capnp::DynamicStruct::Builder request_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_DYNAMIC_CALL_H_
