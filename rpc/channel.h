#ifndef HAWSER_RPC_CHANNEL_H_
#define HAWSER_RPC_CHANNEL_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/buffer.h"
#include "hawser/rpc/options.h"

namespace hawser {

namespace internal {
class ChannelCore;  // rpc/internal/channel_core.h
}

// Calls one peer. Generated stubs are made from it; any number of them, and of calls at once.
// Thread:   any. In a child after fork() every call fails with FailedPrecondition, and nothing of the
//           parent's is touched.
// Lifetime: shared; stubs keep it, and calls keep it connected. Calls in flight when Close() is called end
//           with Cancelled; their callbacks run a moment later.
// Failure:  when the connection is lost, calls in flight end with Unavailable at once, and the channel
//           reconnects with backoff by itself. A call that was not sent yet, whose method is idempotent, or
//           that the server refused without running it, since it goes away, is sent again then; if the attempt
//           to connect fails meanwhile, only one with CallOptions::wait_for_ready waits on. (A channel from
//           ServerContext::peer() has one connection.)
class Channel {
 public:
  // Connects to "tcp://host:port", "rdma://host:port" or "auto://host:port" and waits for how the first
  // attempt ends. The addresses of a name are tried side by side (RFC 8305, Happy Eyeballs). auto: RDMA if
  // this machine has some, it leads to the peer, and the peer listens on it, else TCP; once for the channel's
  // life, which reconnects in the same way. InvalidArgument: not a URI that we know. NotFound: the name does
  // not resolve. Unavailable: no server there, or too slow. FailedPrecondition: the peer speaks another
  // version; or this is a poller's thread (a handler or callback), which must not wait. Otherwise what the
  // server said.
  static absl::StatusOr<std::shared_ptr<Channel>> Connect(absl::string_view uri, ChannelOptions options = {});

  // Likewise, but returns at once and goes on trying: for a program that may start before its servers do, or
  // that is on a poller's thread. auto: TCP where this machine has no RDMA, otherwise InvalidArgument,
  // because only an answer tells whether RDMA leads to the peer.
  static absl::StatusOr<std::shared_ptr<Channel>> Create(absl::string_view uri, ChannelOptions options = {});

  // Of the last owner: disconnects once the last call object is gone; at once, if services are offered. Waits for
  // an on_state_change, a handler of those services or an OnCancel() callback of theirs that runs on another
  // thread, unless that waits in turn for this thread to destroy its channel. None starts afterwards. In one of
  // them it does not wait for itself.
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  // Registered memory for a payload: filled by the application, handed over with Call::Attach(), sent from
  // there. ResourceExhausted: the pool is at its limit.
  absl::StatusOr<Buffer> AllocateBuffer(size_t size_bytes);

  // Ends every call with Cancelled and disconnects. Idempotent; waits for nothing, runs no callback.
  void Close();

  // `callback` runs once, where a callback of Then() would (rpc/call.h), when this channel can never be used
  // again: Close() was called or, for a channel from ServerContext::peer(), the client is gone. Soon if that
  // is so already, also when this object is gone by then.
  void OnClosed(absl::AnyInvocable<void()> callback);

  ChannelState state() const;

  // "tcp://kv1:7470". Of an auto:// what was taken.
  const std::string& peer_address() const;

  // Of an auto:// that took TCP: what stood against RDMA. Otherwise empty.
  const std::string& why_not_rdma() const { return why_not_rdma_; }

  // For generated code and the library.
  const std::shared_ptr<internal::ChannelCore>& core() const { return core_; }
  explicit Channel(std::shared_ptr<internal::ChannelCore> core);

 private:
  static absl::StatusOr<std::shared_ptr<Channel>> ConnectAuto(absl::string_view rest, ChannelOptions options);
  static absl::StatusOr<std::shared_ptr<Channel>> CreateAuto(absl::string_view rest, ChannelOptions options);

  static absl::StatusOr<std::shared_ptr<Channel>> WithWhyNotRdma(
      absl::StatusOr<std::shared_ptr<Channel>> channel, const absl::Status& rdma);

  std::shared_ptr<internal::ChannelCore> core_;
  std::string why_not_rdma_;
};

}  // namespace hawser

#endif  // HAWSER_RPC_CHANNEL_H_
