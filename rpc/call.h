#ifndef HAWSER_RPC_CALL_H_
#define HAWSER_RPC_CALL_H_

// One call. `pages` is a stub, which code generated from a schema provides:
//
//   auto call = pages.Read({.timeout = absl::Seconds(5)});
//   call.request().setNumber(number);  // Built in registered memory.
//   absl::StatusOr<hawser::Reply<Pages::ReadResults>> reply = call.Send().Wait();  // Or Then(), or co_await.
//   if (!reply.ok()) return reply.status();
//   const capnp::Data::Reader page = (*reply)->getPage();  // Valid as long as `reply`.
//   return std::string(page.asChars().begin(), page.size());

#include <capnp/message.h>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/client/call_handle.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/trace.h"
#include "hawser/rpc/wire/exceptions.h"
#include "hawser/rpc/wire/landing.h"
#include "hawser/rpc/wire/message_metadata.h"
#include "hawser/rpc/wire/read_limits.h"

namespace hawser {

namespace internal {

inline CallHandle NewCall(const std::shared_ptr<Channel>& channel, const Method& method,
                          const CallOptions& options) {
  if (channel == nullptr) [[unlikely]]
    return CallHandle::NewWithoutChannel(channel, method, options);
  return CallHandle::New(channel->sender(), method, options);
}

}  // namespace internal

// The results of one call, read in place where the fabric put them. Move-only; owns the memory. A hostile or
// broken server can send a malformed message: the accessors then throw kj::Exception, as Cap'n Proto's do. A
// client that does not trust its server reads inside Read(), which makes that a Status. When the Reply ends,
// the memory that its Readers refer to is reused for another call; so is a handler's request when its call
// ends. A debug build then overwrites that memory, and AddressSanitizer reports each use. After a move, or
// Keep(), it has nothing: every member but the destructor and an assignment is a CHECK then. Readers that
// were taken before are valid as long as the memory.
template <typename Results>
class Reply {
 public:
  Reply(transport::IncomingMessagePtr message, typename Results::Reader reader)
      : message_(std::move(message)), reader_(reader) {}

  // A Reader is valid as long as this object, so a temporary Reply has no accessors:
  // (*call.Send().Wait())->getData() does not compile.
  const typename Results::Reader* operator->() const& { return &reader(); }
  const typename Results::Reader& operator*() const& { return reader(); }
  const typename Results::Reader* operator->() const&& = delete;
  const typename Results::Reader& operator*() const&& = delete;

  // What the handler sent along; valid as long as this object, or what Keep() returned.
  MetadataView metadata() const& ABSL_ATTRIBUTE_LIFETIME_BOUND {
    return internal::MetadataOfResponse(message());
  }
  MetadataView metadata() const&& = delete;

  // The part of the memory of Call::ReceiveInto() that one segment of the response was READ into, from its
  // beginning on. Empty: nothing landed: the response was small, none of its large segments fits, or the call
  // has no ReceiveInto(). A value that the server attached (ServerContext::Attach()) is a segment, filled up
  // to a multiple of 8 bytes; of several the longest that fits lands. The Readers refer to it there: it stays
  // as it is until they are not used any more. If the processor does not see the memory, a Reader that leads
  // there throws, as of a malformed message.
  absl::Span<const uint8_t> landed() const { return message().landed(); }

  // `value`, a Data or the bytes of a Text that the Readers gave, in the memory of Call::ReceiveInto(): where
  // it lies there, if it has landed; otherwise a copy of it, at the beginning of that memory.
  //   absl::StatusOr<absl::Span<uint8_t>> page = reply->Land((*reply)->getPage());
  // OutOfRange: it is longer than that memory. FailedPrecondition: something else has landed there; the
  // processor must not write there; the call has no ReceiveInto().
  absl::StatusOr<absl::Span<uint8_t>> Land(capnp::Data::Reader value) const {
    return internal::Land(message(), value);
  }

  // OK; DataLoss with what was malformed; ResourceExhausted with the limit of ReadLimits that was met.
  template <typename Function>
  absl::Status Read(Function&& function) const {
    const typename Results::Reader& results = reader();
    return internal::CatchMalformed([&] { function(results); });
  }

  // Keeps the memory of a reply whose Readers outlive this object: memory_bytes() of it.
  std::shared_ptr<const void> Keep() && {
    CheckFull();
    return std::shared_ptr<const void>(std::move(message_));
  }

  // Bytes of memory that Keep() keeps, without what has landed: a reply of up to 512 bytes with its header is
  // copied to some 1 KiB of the heap. A larger one keeps registered memory: a receive buffer (4 KiB by
  // default) or, if it did not fit that, the buffer that it was READ into. The limit of the pool bounds
  // registered memory only, so a program that keeps many small replies counts this against a limit of its
  // own.
  uint64_t memory_bytes() const { return message().memory_bytes(); }

 private:
  void CheckFull() const {
    if (message_ == nullptr) [[unlikely]]
      internal::Misused("a Reply was used that was moved from, or whose memory Keep() has taken", nullptr);
  }
  const transport::IncomingMessage& message() const {
    CheckFull();
    return *message_;
  }
  const typename Results::Reader& reader() const {
    CheckFull();
    return reader_;
  }

  transport::IncomingMessagePtr message_;  // Null: it was moved from, or Keep() has taken it.
  typename Results::Reader reader_;
};

template <typename Results>
class FirstOf;

// A call that was sent. One of Wait(), Then(), co_await and Forget() takes its one result; a second one is a
// bug of the program, and a CHECK. Destroying it before that cancels the call.
//
// The memory of Call::ReceiveInto() belongs to the call until its result is there, and is the caller's again
// then, whatever the result is: Wait() has returned, the callback runs, the coroutine is resumed. So the
// destructor of this waits for the result of such a call after it has cancelled it, unless the result was
// taken. In a handler or a callback it would wait for itself, and is a CHECK, also if the peer has answered
// by then: what is sent there gets a Then(), a co_await or a Forget(). The same holds for a coroutine that
// awaits such a call: it cannot be destroyed there before it is resumed, nor anywhere while another thread
// drives the poller. Let it end instead.
template <typename Results>
class [[nodiscard]] PendingCall {
 public:
  explicit PendingCall(internal::CallHandle call) : call_(std::move(call)) {}
  PendingCall(PendingCall&&) noexcept = default;
  PendingCall& operator=(PendingCall&&) = delete;
  ~PendingCall() {
    if (call_ && !taken_) call_.Drop();
  }

  // Blocks until the result is there, at the deadline at the latest, also while a callback on another thread
  // holds the poller of the channel. The waiting thread polls by itself, unless another one does.
  // FailedPrecondition: called on a poller's thread (in a handler or callback), where it would block
  // everything else on that poller. The call is cancelled. (With ReceiveInto() it is a CHECK there, whether
  // the result is there or not. Elsewhere the result then comes once nothing writes to that memory any more,
  // perhaps after the deadline: see there.)
  absl::StatusOr<Reply<Results>> Wait() {
    Take();
    internal::CallResult result = call_.Wait();
    return Typed(std::move(result.message), result.limits);
  }

  // `callback(absl::StatusOr<Reply<Results>>)` runs once, on the thread that drives the poller: the poller's
  // own, or one in a call that waits for the network (Wait(), Channel::Connect()). It never runs inside
  // another call of the application, so the caller may hold a lock that the callback takes. Keep it short:
  // the poller enforces the deadlines, so other callbacks and coroutines get theirs only after it has
  // returned. A callback that fits two pointers is not allocated. The call goes on when this object is
  // destroyed; keep it if you may Cancel(). (In a child after fork(), where no thread drives, it runs here.)
  template <typename Callback>
  PendingCall& Then(Callback callback) {
    Take();
    call_.Then([callback = std::move(callback)](absl::StatusOr<transport::IncomingMessagePtr>&& result,
                                                const ReadLimits& limits) mutable {
      callback(Typed(std::move(result), limits));
    });
    return *this;
  }

  // absl::StatusOr<Reply<Results>> reply = co_await call; resumes where a callback of Then() would run. A
  // coroutine that is destroyed meanwhile cancels the call and is not resumed. Destroy it where it cannot be
  // resumed at that moment: on the poller of the channel, or while no thread drives that. If the channel has
  // several connections, the call is on the poller of one of them, and which is not known: then on the only
  // poller of the runtime, or while no thread drives any of them; or Cancel() the call and let the coroutine
  // end.
  // co_await std::move(call) does the same: the call stays in this object, for Cancel().
  auto operator co_await() {
    Take();
    return Awaiter(call_.Share());
  }

  // Drops the result, be it a reply or an error. The call goes on, also when this object is destroyed: to
  // send and forget.
  //   log.Append(entry).Send().Forget();
  // Nothing reports that the call failed, and nothing bounds how many such calls wait for a slot. Nor does
  // anything report when memory of ReceiveInto() is the caller's again, but for the end of a
  // RegisteredMemory, which waits for that.
  void Forget() {
    Take();
    call_.Then([](absl::StatusOr<transport::IncomingMessagePtr>&&, const ReadLimits&) {});
  }

  // Makes the result Cancelled, unless it is there already, and notifies the server. From any thread, also
  // while another one is in Wait(), or a coroutine awaits the result.
  void Cancel() {
    if (call_) call_.Cancel();
  }

 private:
  friend class FirstOf<Results>;

  class Awaiter final : public internal::CallAwaiter {
   public:
    using CallAwaiter::CallAwaiter;
    absl::StatusOr<Reply<Results>> await_resume() {
      transport::IncomingMessagePtr reply = this->TakeReply();
      if (reply == nullptr) [[unlikely]]
        return this->TakeError();
      return TypedReply(std::move(reply), this->limits());
    }
  };

  // A proxy written by hand may have Results that are no struct, such as capnp::AnyPointer.
  static typename Results::Reader ReadRoot(transport::IncomingMessage& reply, const ReadLimits& limits) {
    if constexpr (capnp::kind<Results>() == capnp::Kind::STRUCT) {
      return typename Results::Reader(internal::ReadRootStruct(reply, limits));
    } else {
      return internal::Root(reply, limits).template getAs<Results>();
    }
  }
  static absl::StatusOr<Reply<Results>> TypedReply(transport::IncomingMessagePtr&& reply,
                                                   const ReadLimits& limits) {
    try {
      // The constructor of Reply moves `reply`, after the root was read.
      return absl::StatusOr<Reply<Results>>(absl::in_place, std::move(reply), ReadRoot(*reply, limits));
    } catch (const kj::Exception& exception) {
      return internal::StatusOfMalformed(exception);
    }
  }
  static absl::StatusOr<Reply<Results>> Typed(absl::StatusOr<transport::IncomingMessagePtr>&& result,
                                              const ReadLimits& limits) {
    if (!result.ok()) return std::move(result).status();
    return TypedReply(*std::move(result), limits);
  }

  void Take() {
    if (!call_ || std::exchange(taken_, true)) [[unlikely]] {
      internal::Misused(
          "Wait(), Then(), co_await or Forget() twice on one PendingCall, or on one that was moved from",
          call_ ? call_.method().name : nullptr);
    }
  }

  internal::CallHandle call_;
  bool taken_ = false;
};

// A call that is being built, in registered memory. Fill request(), then Send(). Move-only.
template <typename Params, typename Results>
class [[nodiscard]] Call {
 public:
  // `channel` is null: the call ends with FailedPrecondition, which says why if ServerContext::peer()
  // returned it, and the log has a line.
  Call(const std::shared_ptr<Channel>& channel, const Method& method, const CallOptions& options)
      : call_(internal::NewCall(channel, method, options)),
        method_name_(method.name),
        request_(InitRoot(call_.request())) {}
  Call(Call&&) noexcept = default;
  Call& operator=(Call&&) = delete;

  // A Cap'n Proto builder. It throws kj::Exception at its caller when it is asked for more than it can hold:
  // a Data of more than 512 MiB - 1 bytes (initValue(), setValue()), a Text of one less, a list of more than
  // 2^29 - 1 elements or 4 GiB. Nothing else of a call throws. CHECK: the call was sent, or moved from.
  typename Params::Builder& request() {
    CheckUnsent();
    return request_;
  }

  // A value for the request that is sent from its own memory:
  // call.request().adoptValue(call.Attach(std::move(buffer))).
  capnp::Orphan<capnp::Data> Attach(Buffer buffer) {
    auto owner = std::make_shared<Buffer>(std::move(buffer));
    return Attach(owner->reader(), owner);
  }
  // `owner` lives until the server no longer needs `bytes`. It is destroyed on any thread, inside any call,
  // so its destructor takes no lock that is held around one. Copies `bytes` if they are not in registered
  // memory, if they are not aligned to 8 bytes, or if the rest of their last word is not 0: whole words
  // cross. Do not write to `bytes`, or to that rest, until `owner` is released. Attached bytes are sent even
  // if the request never adopts them. More than 512 MiB - 1 bytes: the orphan is empty, and the call ends
  // with InvalidArgument.
  capnp::Orphan<capnp::Data> Attach(capnp::Data::Reader bytes, std::shared_ptr<const void> owner) {
    CheckUnsent();
    return call_.request().Attach(bytes, std::move(owner));
  }

  // A large value of the reply lands in `buffer`: this side READs it there, without a copy and without memory
  // of the pool, and the server never gets a key to it. `buffer` begins at a multiple of 8 bytes, and is
  // memory of Channel::AllocateBuffer() or of Channel::Register() (rpc/registered_memory.h), of a channel on
  // the same runtime. Its length bounds what lands, not the reply: what does not fit, or is small enough to
  // come in a message (up to the receive buffer, 4 KiB by default, as a whole, or 1 KiB of it), is received
  // as without this. Reply::landed() says what has landed, and Reply::Land() gets a value there in each case.
  // Over TCP the bytes go from the socket to `buffer`.
  //
  // From Send() until the result is there `buffer` belongs to the call: the caller neither reads nor writes
  // it, nor gives it to another call or operation, nor destroys the Buffer that it is of, whose memory would
  // go to another message. Then no NIC touches it any more, however the call ended; after an error its bytes
  // are unspecified. A READ that was posted cannot be revoked. So a call whose deadline passes, or that is
  // cancelled, while its response is being READ ends when the READs that were posted have completed, usually
  // within a millisecond; and if the server does not answer these for `keepalive_interval` and
  // `keepalive_timeout` together (ConnectionOptions; 15 s by default), the connection is ended, at the cost
  // of the other calls on it; without pings that time is `keepalive_timeout`, and while the server is known
  // to be busy it begins anew. If the connection is lost while the response is being READ, the call ends with
  // Unavailable, once the NIC no longer uses the memory: after milliseconds, or after 35 s if the NIC is
  // stuck. A call that was cancelled, or whose deadline had passed, before the loss keeps that reason.
  //
  // The call ends with InvalidArgument if `buffer` is less than 8 bytes, not aligned, or not registered as a
  // whole with the device of the channel, or not any more; with FailedPrecondition if the device cannot use
  // its RegisteredMemory any more (see the guide), or the processor does not see that and it is being
  // released. A second ReceiveInto() takes the place of the first, unless that was refused. Such a call
  // cannot be given to FirstOf, which is a CHECK. CHECK: as request().
  void ReceiveInto(absl::Span<uint8_t> buffer) {
    CheckUnsent();
    call_.ReceiveInto(buffer);
  }

  // Says something of this call in its span: see ServerContext::SetSpanAttribute(). CHECK: as request().
  void SetSpanAttribute(absl::string_view key, const SpanValue& value) {
    CheckUnsent();
    call_.SetSpanAttribute(key, value);
  }

  // Sends the request; do not use request() afterwards. Never blocks, and runs no code of the application but
  // Begin() of the channel's interceptors (rpc/interceptor.h). Every error becomes the result. If the server
  // did not answer, WasSent() (rpc/status.h) says whether it may have run the call. A second Send() is a
  // CHECK. The result cancels the call when it is destroyed, so keep it, take the call's result from it, or
  // Forget() that.
  PendingCall<Results> Send() {
    CheckUnsent();
    call_.Send();
    return PendingCall<Results>(std::move(call_));
  }

 private:
  // As PendingCall reads the root of a reply.
  static typename Params::Builder InitRoot(transport::OutgoingMessage& request) {
    if constexpr (capnp::kind<Params>() == capnp::Kind::STRUCT) {
      return typename Params::Builder(request.InitRootStruct(capnp::_::structSize<Params>()));
    } else {
      return request.builder().template initRoot<Params>();
    }
  }
  void CheckUnsent() const {
    if (!call_) [[unlikely]]
      internal::Misused(
          "request(), Attach(), ReceiveInto(), SetSpanAttribute() or Send() on a Call that was sent, or "
          "moved from",
          method_name_);
  }

  internal::CallHandle call_;
  const char* method_name_;  // Also once call_ is gone.
  typename Params::Builder request_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_CALL_H_
