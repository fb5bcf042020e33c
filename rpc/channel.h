#ifndef HAWSER_RPC_CHANNEL_H_
#define HAWSER_RPC_CHANNEL_H_

// A channel to a server, with which stubs make calls:
//
//   hawser::ChannelOptions options;
//   options.default_timeout = absl::Seconds(2);  // Of calls that name none.
//   options.on_state_change = [log_line](hawser::ChannelState state, const absl::Status& why) {
//     log_line(absl::StrCat(hawser::ToString(state), ": ", why.ToString()));
//   };
//   absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(uri, options);
//   if (!channel.ok()) return channel.status();
//   PagesStub pages(*channel);  // Any number of stubs and threads share the channel.

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/registered_memory.h"
#include "hawser/rpc/stats.h"
#include "hawser/tls/peer_identity.h"

namespace hawser {

namespace internal {
class CallSender;   // rpc/client/call_sender.h
class ChannelCore;  // rpc/client/channel_core.h
}  // namespace internal

// Calls one peer. Any number of generated stubs may share it, with any number of calls at once.
// Thread:   any. In a child after fork() every call fails with FailedPrecondition, and nothing of the
//           parent's is touched.
// Lifetime: shared; stubs keep it, and calls keep it connected. Calls in flight when Close() is called end
//           with Cancelled; their callbacks run a moment later.
// Failure:  when the connection is lost, calls in flight end with Unavailable at once, and the channel
//           reconnects with backoff by itself. It then sends calls that were not sent yet, whose method is
//           idempotent, or that the server refused unrun because it goes away. If an attempt to connect fails
//           meanwhile, only calls with CallOptions::wait_for_ready go on waiting. (A channel from
//           ServerContext::peer() has one connection.) With several connections (ChannelOptions::connections)
//           the calls of one that is lost, or of a server that goes away, end or are sent again by the same
//           rules, over the others at once; new calls go to the others.
class Channel {
 public:
  // Connects to "tcp://host:port", "rdma://host:port" or "auto://host:port" and waits until the first attempt
  // ends; with several connections, until one of them is ready, or the first attempts of all have failed, or
  // the poller of the first is held by a callback for ChannelOptions::connect_timeout (Unavailable). If the
  // server refuses it for lack of room (ResourceExhausted), it tries again within
  // ChannelOptions::connect_timeout. The addresses of a name are tried side by side (RFC 8305, Happy
  // Eyeballs).
  // auto: RDMA if this machine has it, it leads to the peer, and the peer listens on it, else TCP; with
  // require_encryption always TCP. The choice holds for the channel's life, also when it reconnects.
  // InvalidArgument: not a URI that we know; with ChannelOptions::credentials also: files that cannot be
  // used, or rdma:// and require_encryption. NotFound: the name does not resolve. Unavailable: no server
  // there, or too slow.
  // Unauthenticated: one side does not trust the other, or only one of them has credentials.
  // FailedPrecondition: the peer speaks another version; or this is a poller's thread (a handler or
  // callback), which must not wait. Otherwise the server's own status.
  static absl::StatusOr<std::shared_ptr<Channel>> Connect(absl::string_view uri, ChannelOptions options = {});

  // Channels to several servers, replicas of one service say, in the order of `uris`: dials all of them at
  // once, and waits until one of them is ready. The others go on by themselves, as after Create(), so one
  // server that is down, or slow to answer, keeps no program from its start; why_not_ready() says what is
  // wrong with each. A call over one that is not connected waits for the attempt that is under way, and
  // between two attempts ends with Unavailable at once: begin with those whose state() is kReady. All have
  // the same `options`, so `on_state_change` does not say which of them it is about.
  // Not OK: none could be connected, with the errors of the first four, as of Connect(); or InvalidArgument:
  // also if `uris` is empty. auto: as Create().
  static absl::StatusOr<std::vector<std::shared_ptr<Channel>>> ConnectAny(absl::Span<const std::string> uris,
                                                                          const ChannelOptions& options = {});

  // Returns at once and keeps trying: for a program that may start before its servers, or that is on a
  // poller's thread.
  // auto: InvalidArgument, also where this machine has no RDMA, because only an answer shows whether RDMA
  // leads to the peer: use Connect(), or tcp:// or rdma://. But what the options settle is taken: TCP with
  // require_encryption, or the network of ChannelOptions::runtime.
  static absl::StatusOr<std::shared_ptr<Channel>> Create(absl::string_view uri, ChannelOptions options = {});

  // The last owner's disconnects once the last call object is gone; at once, if services are offered. It
  // waits for an on_state_change, and for a handler or OnCancel() callback of those services, that runs on
  // another thread, unless that in turn waits for this thread to destroy its channel. None starts afterwards.
  // Called inside one of them, it does not wait for itself.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Registered memory for a payload: the application fills it, and Call::Attach() sends it from there. It is
  // not zeroed, and may hold what another peer has sent: see Buffer.
  // ResourceExhausted: the pool is at its limit.
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes);

  // Registers memory of the program's own with the device of this channel, once: see RegisteredMemory. The
  // program keeps the memory until that is destroyed or released. Slow over RDMA, and takes the memlock
  // limit: for memory that stays. InvalidArgument: it has no address or no bytes, or not what its kind needs.
  // Unimplemented: the fabric, or the device, cannot use memory of this kind; the text says why.
  // ResourceExhausted: nothing more can be registered. PermissionDenied: it is mapped read-only,
  // which is found over RDMA alone. Over TCP nothing is checked, and a READ into it may be a SIGSEGV on
  // the poller.
  absl::StatusOr<RegisteredMemory> Register(const MemoryRange& range);

  // Ends every call with Cancelled and disconnects. Idempotent; waits for nothing, runs no callback.
  void Close();

  // `callback` runs once, where a callback of Then() would (rpc/call.h), when this channel can never be used
  // again: Close() was called or, for a channel from ServerContext::peer(), the client is gone. If that is so
  // already, it runs soon, even if this object is destroyed before. An empty one has no effect. It is kept
  // until it has run: one that holds this channel (a shared_ptr, or a stub) keeps the channel until Close()
  // or the client's end, so let it hold a weak_ptr. Callbacks of the calls that this end has ended run
  // before, but for those whose memory a NIC may still use: with ReceiveInto(), or about to be sent again.
  // With several connections it runs when the first of them is closed, on the poller of that one: callbacks
  // of calls may still run on other pollers.
  void OnClosed(absl::AnyInvocable<void()> callback);

  ChannelState state() const;

  // Why it is not ready: how the last attempt to connect ended, why the connection was lost since, or that it
  // is closed. OK: it is ready, or its first attempt has not ended; also in a child after fork(). From any
  // thread; a copy.
  absl::Status why_not_ready() const;

  // "tcp://kv1:7470". For auto://, the address that was chosen.
  const std::string& peer_address() const;

  // The names in the certificate of the server or, for a channel from ServerContext::peer(), of the client:
  // those of the current connection (of several: one that is up); not authenticated while there is none, or
  // without credentials, or in a child after fork(). From any thread; a copy. Not that of an answer, which
  // may come over an earlier connection. With credentials every server has the name that was asked for.
  PeerIdentity peer_identity() const;

  // Why an auto:// channel took TCP and not RDMA. Otherwise empty.
  const std::string& why_not_rdma() const { return why_not_rdma_; }

  // What the poller of this channel, or of its first connection, has decided, for this and other channels on
  // it. After fork(), in the child: nothing.
  PollerStats poller_stats() const;

  // For generated code and the library.
  const std::shared_ptr<internal::CallSender>& sender() const { return sender_; }
  std::shared_ptr<internal::ChannelCore> core() const;
  explicit Channel(std::shared_ptr<internal::ChannelCore> core);

 private:
  static absl::StatusOr<std::shared_ptr<Channel>> ConnectAuto(absl::string_view rest, ChannelOptions options);

  static absl::StatusOr<std::shared_ptr<Channel>> WithWhyNotRdma(
      absl::StatusOr<std::shared_ptr<Channel>> channel, const absl::Status& rdma);

  std::shared_ptr<internal::CallSender> sender_;  // A ChannelCore.
  std::string why_not_rdma_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_CHANNEL_H_
