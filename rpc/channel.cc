#include "hawser/rpc/channel.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/rpc/channel_core.h"

namespace hawser {

absl::StatusOr<std::shared_ptr<Channel>> Channel::Connect(absl::string_view uri, ChannelOptions options) {
  absl::StatusOr<std::shared_ptr<Channel>> channel = Create(uri, std::move(options));
  if (!channel.ok()) return channel;
  internal::ChannelCore& core = *(*channel)->core();
  if (core.poller().Held()) {
    return absl::FailedPreconditionError(
        absl::StrCat("connecting to ", uri,
                     " on the thread that would have to do it (in a callback); use Channel::Create() there"));
  }
  if (absl::Status status = core.WaitForFirstAttempt(); !status.ok()) return status;
  return channel;
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::Create(absl::string_view uri, ChannelOptions options) {
  absl::StatusOr<std::shared_ptr<internal::ChannelCore>> core =
      internal::ChannelCore::Create(uri, std::move(options));
  if (!core.ok()) return core.status();
  return std::make_shared<Channel>(*std::move(core));
}

Channel::Channel(std::shared_ptr<internal::ChannelCore> core) : core_(std::move(core)) {}

Channel::~Channel() { core_->LetGo(); }

absl::StatusOr<Buffer> Channel::AllocateBuffer(size_t size_bytes) {
  return core_->AllocateBuffer(size_bytes);
}

void Channel::Close() { core_->Close(absl::CancelledError("the channel was closed")); }

void Channel::OnClosed(absl::AnyInvocable<void()> callback) { core_->OnClosed(std::move(callback)); }

ChannelState Channel::state() const { return core_->state(); }

const std::string& Channel::peer_address() const { return core_->peer_address(); }

}  // namespace hawser
