#ifndef HAWSER_RPC_SERVER_CONTEXT_H_
#define HAWSER_RPC_SERVER_CONTEXT_H_

// A handler that answers later, from another thread. `disk_` is a pool of threads:
//
//   absl::Status Read(hawser::ServerContext& context, Pages::ReadParams::Reader request,
//                     Pages::ReadResults::Builder reply) override {
//     disk_.Add([this, call = context.Defer(), request, reply]() mutable {
//       call.Finish(ReadFromDisk(request.getNumber(), reply));
//     });
//     return absl::OkStatus();
//   }

#include <capnp/any.h>
#include <capnp/blob.h>
#include <capnp/layout.h>
#include <capnp/orphan.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/kept.h"
#include "hawser/rpc/memory.capnp.h"
#include "hawser/rpc/metadata.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/shared_memory.h"
#include "hawser/rpc/trace.h"
#include "hawser/rpc/wire/read_limits.h"
#include "hawser/tls/peer_identity.h"
#include "hawser/transport/wire/message.h"

namespace hawser {

class Channel;
class DeferredCall;
class ServerContext;

namespace internal {
// The status for the exception that is being handled, which the handler of this call threw: see
// InvokeHandler(). Logs its text.
absl::Status StatusOfHandlersException(const ServerContext& context);
// The answer of a hawser::Task that has run off its end. Logs it.
absl::Status StatusWithoutReturn(const ServerContext& context);
class ServerCall;  // The call behind a ServerContext: rpc/serving/server_call.h.
}  // namespace internal

// One call as its handler sees it. The handler fills reply and returns OK, or returns an error. Or it calls
// Defer() and answers later, from any thread.
// Thread:   that of the handler and, after Defer(), the one that has the DeferredCall; cancelled() and
//           TimeRemaining() from any.
// Lifetime: until the handler has returned and, if it deferred, the DeferredCall has finished.
class ServerContext {
 public:
  ServerContext(const ServerContext&) = delete;
  ServerContext& operator=(const ServerContext&) = delete;

  // The typed parameters and results. Generated code hands them to the handler. request() throws
  // kj::Exception on a malformed message.
  template <typename Params>
  typename Params::Reader request() {
    if constexpr (capnp::kind<Params>() == capnp::Kind::STRUCT) {
      return typename Params::Reader(request_struct());
    } else {
      return request_root().getAs<Params>();
    }
  }
  template <typename Results>
  typename Results::Builder reply() {
    if constexpr (capnp::kind<Results>() == capnp::Kind::STRUCT) {
      return typename Results::Builder(reply_struct(capnp::_::structSize<Results>()));
    } else {
      return reply_root().initAs<Results>();
    }
  }

  // How long the caller still waits; zero when it has stopped waiting.
  absl::Duration TimeRemaining() const;

  // The caller cancelled, its deadline passed, or its connection is gone. The server then answers the call as
  // soon as its poller is free, and the handler's answer has no effect. Request and reply stay valid as said
  // above.
  bool cancelled() const;

  // `callback` runs once, on the thread that drives the poller, when the caller cancels, its deadline passes
  // or its connection is lost; soon, if that is so already. It never runs inside a call of the application,
  // this one included, and does not start after the call has finished. Keep it short. A second callback
  // replaces the first. (For a service that a client offers: not after its Channel is destroyed.)
  void OnCancel(absl::AnyInvocable<void()> callback);

  // What was called.
  const Method& method() const;

  // What the caller sent along; valid as long as the request.
  MetadataView metadata() const;

  // What goes along with the answer, be it the reply or an error; to be changed until then. A reply whose
  // metadata is not OK becomes Internal. After Defer() it goes with what the DeferredCall finishes with, not
  // with an error that the handler returns.
  Metadata& reply_metadata();

  // Says something of this call in its span (rpc/trace.h), such as context.SetSpanAttribute("page.number",
  // 7). A second time with the same key takes the place of the first. Has no effect if the call has no span:
  // there is no trace sink, or the call is not sampled. What exceeds kSpanAttributesMax or
  // kSpanAttributeBytesMax is left out, and counted.
  void SetSpanAttribute(absl::string_view key, const SpanValue& value);

  // "tcp://10.0.0.7:51234".
  const std::string& peer_address() const;

  // Names this call in the program's own log as Hawser's log, the status page and the probes name it:
  // "12:3.17" is the third slot of connection 12, and its 17th call. Unique in this process until that slot
  // has had 2^32 calls.
  std::string call_id() const;

  // The names in the certificate of the caller: of the client or, for a service that a client offers, of the
  // server. `is_authenticated` is false without credentials. Constant, and valid as long as the context.
  const PeerIdentity& peer_identity() const;

  // A channel to call the services that this client offers (ChannelOptions::services), the same object for
  // each call of one client, so that it can be compared. nullptr: the client offers none, or its reverse
  // connection is not up; or this is the handler of a service that a client offers. The client decides that,
  // so look before you use it. A call of a stub that got nullptr ends with FailedPrecondition.
  // Channel::OnClosed() notifies when the client is gone.
  std::shared_ptr<Channel> peer() const;

  // Answers later: an OK that the handler returns is ignored. An error that it returns is the answer, unless
  // the DeferredCall has finished before. Request and reply stay valid until the DeferredCall has finished. A
  // second Defer() is a CHECK.
  DeferredCall Defer();

  // Keeps a value of the request, for a store: where the NIC put it if that holds little more than the value,
  // else in a copy, which is made here. What is kept takes at most 1.25 times the value's bytes and 512 more,
  // whatever the client sends beside it. The reply of a later call may Attach() it. The copy of a value of 1
  // KiB or more is in registered memory if there is some at once. Call it once for a value: a second time may
  // keep it once more. A null pointer with a size is a CHECK.
  KeptBytes KeepBytes(capnp::Data::Reader bytes);

  // Likewise keeps a struct of the request, with all that it points to, or the request itself:
  //   hawser::Kept<Order> order = context.Keep(request.getOrder());  // Later: order->getName()
  // Fields that this program's schema does not know are kept, too. For a single Data KeepBytes() is better.
  // Keeps nothing of an empty struct.
  // What is kept takes at most 1.25 times the struct's bytes (totalSize()) and 512 more. If the memory that
  // the request was received into takes no more than that, it is kept as it is, and nothing is copied; else
  // the struct is copied, like a value of KeepBytes(). A hostile client may let many pointers of the struct
  // lead to the same objects, so that totalSize(), and a look at all of it, is more than was sent, up to
  // ReadLimits. It is kept as it was received then: a copy never takes more memory than the request has.
  // The client also chooses what is behind a Data in its last word. If that is not 0 in a struct that is kept
  // as it was received, each Attach() of the Data copies it.
  // Throws kj::Exception, as a getter does, if the struct is malformed, has capabilities, or is beyond
  // ReadLimits. Those no longer count what is read of the struct that is kept.
  template <typename Reader>
  Kept<capnp::FromReader<Reader>> Keep(const Reader& value) {
    using Struct = capnp::FromReader<Reader>;
    static_assert(
        capnp::kind<Struct>() == capnp::Kind::STRUCT,
        "Keep() takes a struct; for a Data there is KeepBytes(), other values are kept with their struct");
    return Kept<Struct>(KeepStruct(value));
  }

  // Registered memory for a value of the reply, of the device that this caller is connected over: Attach()
  // sends it without a copy. It is not zeroed, and may hold what another peer has sent: see Buffer. 0 bytes
  // are possible.
  //   absl::StatusOr<hawser::Buffer> page = context.AllocateBuffer(size_bytes);
  //   if (!page.ok()) return absl::ResourceExhaustedError("no memory for the page");
  //   ReadFromDisk(page->data(), page->size_bytes());
  //   reply.adoptPage(context.Attach(*std::move(page)));
  // ResourceExhausted: the pool is at its limit; the text has its size, which is for a log and not for
  // callers. FailedPrecondition: in a child after fork().
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes);
  capnp::Orphan<capnp::Data> Attach(Buffer buffer);

  // Lets this caller reach part of `memory` by itself (rpc/remote_memory.h), and fills in the ticket that it
  // needs for that, wherever in the reply that is. The ticket is good for the connection that this call came
  // over, until that ends, or `memory` is revoked. The same part for the same purpose has one ticket.
  //   return context.Grant(table_, {.offset = 0, .length = 1 << 20}, reply.initTable());
  // The first time for the network of this caller it may have to register the memory: see Server::Share().
  // With a counter a ticket is good for clients of a version that knows it; at an older one each operation
  // ends with InvalidArgument or Unimplemented.
  // OutOfRange, InvalidArgument: there is no such part, or another server shares it; or a counter is given,
  // and no access for WRITEs. ResourceExhausted: this client, or its host, has too many tickets, or the
  // system lets the memory not be registered for the network of this caller. FailedPrecondition: `memory` is
  // revoked; or this is the handler of a service that a client offers.
  absl::Status Grant(const SharedMemory& memory, const GrantOptions& options, memory::Ticket::Builder ticket);
  // The memory would be revoked at once.
  absl::Status Grant(SharedMemory&& memory, const GrantOptions& options,
                     memory::Ticket::Builder ticket) = delete;

  // A value for the reply that is sent from its own memory. `owner` is kept until the client has fetched
  // it all, and is destroyed on any thread, inside any call: its destructor takes no lock that is held
  // around one. Nothing is copied if `bytes` lie in registered memory (a Buffer, or 1 KiB and more of what
  // KeepBytes() or Keep() keeps) aligned to 8 bytes, and the rest of their last word is 0: whole words cross.
  // Otherwise they are copied, here. Do not write to `bytes`, or to that rest, until `owner` is released.
  // Attached bytes are sent even if the reply never adopts them. More than 512 MiB - 1 bytes: the orphan is
  // empty, and the call ends with InvalidArgument. A null pointer with a size is a CHECK.
  //   reply.adoptValue(context.Attach(value.bytes, value.owner));
  capnp::Orphan<capnp::Data> Attach(capnp::Data::Reader bytes, std::shared_ptr<const void> owner);

 private:
  friend class internal::ServerCall;
  friend class DeferredCall;
  friend struct CallOptions;
  friend class Sleep;
  friend absl::Status internal::StatusOfHandlersException(const ServerContext& context);
  ServerContext(internal::ServerCall* call, const ReadLimits& limits) : call_(call), limits_(limits) {}

  internal::KeptStruct KeepStruct(capnp::AnyStruct::Reader value);
  capnp::AnyPointer::Reader request_root() { return internal::Root(*request_, limits_); }
  capnp::_::StructReader request_struct() { return internal::ReadRootStruct(*request_, limits_); }
  capnp::AnyPointer::Builder reply_root() { return reply_message().builder().getRoot<capnp::AnyPointer>(); }
  capnp::_::StructBuilder reply_struct(capnp::_::StructSize size) {
    return reply_message().InitRootStruct(size);
  }
  transport::OutgoingMessage& reply_message() {
    if (reply_ == nullptr) [[unlikely]]
      MakeReply();
    return *reply_;
  }
  [[gnu::noinline]] void MakeReply();

  internal::ServerCall* const call_;
  const ReadLimits& limits_;
  transport::IncomingMessage* request_ = nullptr;  // Null: the ServerCall is free.
  transport::OutgoingMessagePtr reply_;
};

// The duty to answer one call, and the right to. Move-only; destroyed unanswered it answers Internal. If its
// handler has not returned then, the answer waits for that, and an error that the handler returns or throws
// is the answer.
// Thread:   any, one at a time.
class [[nodiscard]] DeferredCall {
 public:
  DeferredCall() = default;
  DeferredCall(DeferredCall&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}
  DeferredCall& operator=(DeferredCall&& other) noexcept {
    std::swap(context_, other.context_);
    return *this;
  }
  ~DeferredCall();

  explicit operator bool() const { return context_ != nullptr; }
  // CHECK: it was finished, or moved from.
  ServerContext& context() const {
    if (context_ == nullptr) [[unlikely]]
      CheckFull();
    return *context_;
  }

  // Sends the reply, or `status` if it is not OK. Runs no code of the application but OnEnd() of the
  // interceptors (rpc/interceptor.h). Has no effect the second time and, except for OnEnd(), after the caller
  // stopped waiting, or after the server has ended.
  void Finish(absl::Status status = absl::OkStatus());

 private:
  friend class ServerContext;
  explicit DeferredCall(ServerContext* context) : context_(context) {}
  void CheckFull() const;

  ServerContext* context_ = nullptr;
};

}  // namespace hawser

#endif  // HAWSER_RPC_SERVER_CONTEXT_H_
