#include "hawser/rpc/channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "hawser/rpc/client/channel_core.h"
#include "hawser/rpc/client/channel_setup.h"
#include "hawser/rpc/client/connection_group.h"
#include "hawser/rpc/client/first_connected.h"
#include "hawser/rpc/status.h"
#include "hawser/rpc/wire/misplaced_wait.h"
#include "hawser/transport/fabrics.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/uri.h"

namespace hawser {

namespace {

constexpr char kAuto[] = "auto://";

// To find out whether the peer answers over RDMA. One that does takes milliseconds; one whose packets a
// firewall drops should not keep a client from TCP.
constexpr absl::Duration kAutoTimeout = absl::Seconds(1);

// OK, or why auto:// takes TCP without a look at RDMA.
absl::Status MayPreferRdma(const ChannelOptions& options) {
  if (!options.credentials.has_value()) return absl::OkStatus();
  return transport::CheckSchemeIsSecure(transport::kPreferredScheme, options.credentials->require_encryption);
}

// The transport of a URI, as the options alone tell it: without a connection to the peer, and without a look
// at this machine, so that what works on one without RDMA does on one that has it.
struct Unasked {
  std::string uri;
  absl::Status why_not_rdma;  // For auto://.
};

// `function` needs it. InvalidArgument: only an answer of the peer says what `uri` stands for.
absl::StatusOr<Unasked> WithoutAsking(absl::string_view uri, const ChannelOptions& options,
                                      absl::string_view function) {
  if (!absl::StartsWith(uri, kAuto)) return Unasked{std::string(uri), absl::OkStatus()};
  absl::StatusOr<transport::Uri> to = transport::ParseUri(uri);
  if (!to.ok()) return to.status();
  if (options.runtime != nullptr) {
    to->scheme = std::string(options.runtime->scheme());
    return Unasked{to->ToString(), options.runtime->CheckServes(transport::kPreferredScheme)};
  }
  absl::Status rdma = MayPreferRdma(options);
  if (rdma.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        uri, ": only an answer of the peer tells whether RDMA leads to it, and ", function,
        " does not wait for one, so it takes no auto://, on any machine; use Channel::Connect(), or name "
        "tcp:// or rdma://"));
  }
  to->scheme = std::string(transport::kFallbackScheme);
  return Unasked{to->ToString(), rdma};
}

internal::ChannelCore& CoreOf(const std::shared_ptr<internal::CallSender>& sender) {
  return static_cast<internal::ChannelCore&>(*sender);
}

// OK: of its connections one is ready, or none has failed yet.
absl::Status WhyNoneReady(const internal::ChannelCore& core) {
  if (core.group() == nullptr) return core.why_not_ready();
  absl::Status why;
  for (const std::shared_ptr<internal::ChannelCore>& each : core.group()->Cores()) {
    if (each->state() == ChannelState::kReady) return absl::OkStatus();
    if (why.ok()) why = each->why_not_ready();
  }
  return why;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Channel>> Channel::WithWhyNotRdma(
    absl::StatusOr<std::shared_ptr<Channel>> channel, const absl::Status& rdma) {
  if (channel.ok()) (*channel)->why_not_rdma_ = std::string(rdma.message());
  return channel;
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::ConnectAuto(absl::string_view rest,
                                                              ChannelOptions options) {
  const absl::Status understood = transport::ParseUri(absl::StrCat(kAuto, rest)).status();
  if (!understood.ok()) return understood;
  const auto with = [&](absl::string_view scheme) { return absl::StrCat(scheme, "://", rest); };
  if (options.runtime != nullptr) {
    // Not in the argument list, where `options` may be moved first.
    const std::string uri = with(options.runtime->scheme());
    const absl::Status rdma = options.runtime->CheckServes(transport::kPreferredScheme);
    return WithWhyNotRdma(Connect(uri, std::move(options)), rdma);
  }
  if (const absl::Status secure = MayPreferRdma(options); !secure.ok()) {
    return WithWhyNotRdma(Connect(with(transport::kFallbackScheme), std::move(options)), secure);
  }
  // A channel of its own, so that the application does not hear of an attempt that leads to nothing.
  ChannelOptions trial;
  trial.connect_timeout = std::min(options.connect_timeout, kAutoTimeout);
  trial.connection = options.connection;
  trial.credentials = options.credentials;
  const absl::Status rdma = Connect(with(transport::kPreferredScheme), trial).status();
  if (rdma.ok()) return Connect(with(transport::kPreferredScheme), std::move(options));
  absl::StatusOr<std::shared_ptr<Channel>> channel =
      Connect(with(transport::kFallbackScheme), std::move(options));
  if (!channel.ok()) {
    absl::Status status(channel.status().code(),
                        absl::StrCat(absl::string_view(channel.status().message()),
                                     "; and over RDMA: ", absl::string_view(rdma.message())));
    internal::KeepTextHere(status, "connecting");
    return status;
  }
  return WithWhyNotRdma(std::move(channel), rdma);
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::Connect(absl::string_view uri, ChannelOptions options) {
  if (transport::Poller::ThisThreadHoldsOne()) {
    return internal::MisplacedWait("Channel::Connect()",
                                   ", on a poller's thread, where everything else on that poller would wait, "
                                   "too; use Channel::Create() there",
                                   absl::StrCat("connecting to ", uri));
  }
  if (absl::StartsWith(uri, kAuto)) return ConnectAuto(absl::StripPrefix(uri, kAuto), std::move(options));
  const absl::StatusOr<internal::ChannelSetup> setup = internal::ChannelSetup::From(uri, std::move(options));
  if (!setup.ok()) return setup.status();
  const auto core = internal::ChannelCore::Create(*setup, /*insists=*/true);
  auto channel = std::make_shared<Channel>(core);
  if (absl::Status status = core->WaitForFirstAttempt(); !status.ok()) return status;
  return channel;
}

absl::StatusOr<std::vector<std::shared_ptr<Channel>>> Channel::ConnectAny(absl::Span<const std::string> uris,
                                                                          const ChannelOptions& options) {
  if (transport::Poller::ThisThreadHoldsOne()) {
    return internal::MisplacedWait("Channel::ConnectAny()",
                                   ", on a poller's thread, where everything else on that poller would wait, "
                                   "too; use Channel::Create() there",
                                   absl::StrCat("connecting to ", absl::StrJoin(uris, ", ")));
  }
  if (uris.empty()) return absl::InvalidArgumentError("Channel::ConnectAny() was given no address");
  // All are checked before one is dialed.
  std::vector<internal::ChannelSetup> setups;
  std::vector<absl::Status> why_not_rdma;
  for (const std::string& uri : uris) {
    absl::StatusOr<Unasked> to = WithoutAsking(uri, options, "Channel::ConnectAny()");
    if (!to.ok()) return to.status();
    absl::StatusOr<internal::ChannelSetup> setup = internal::ChannelSetup::From(to->uri, options);
    if (!setup.ok()) return setup.status();
    setups.push_back(*std::move(setup));
    why_not_rdma.push_back(std::move(to->why_not_rdma));
  }
  const auto first = std::make_shared<internal::FirstConnected>(setups.size());
  std::vector<std::shared_ptr<Channel>> channels;
  std::vector<std::shared_ptr<internal::ChannelCore>> cores;
  for (size_t number = 0; number < setups.size(); ++number) {
    cores.push_back(internal::ChannelCore::Create(setups[number], /*insists=*/true));
    channels.push_back(std::make_shared<Channel>(cores.back()));
    channels.back()->why_not_rdma_ = std::string(why_not_rdma[number].message());
    first->Await(number, cores.back());
  }
  if (absl::Status status = first->Wait(cores); !status.ok()) return status;
  return channels;
}

absl::StatusOr<std::shared_ptr<Channel>> Channel::Create(absl::string_view uri, ChannelOptions options) {
  const absl::StatusOr<Unasked> to = WithoutAsking(uri, options, "Channel::Create()");
  if (!to.ok()) return to.status();
  const absl::StatusOr<internal::ChannelSetup> setup =
      internal::ChannelSetup::From(to->uri, std::move(options));
  if (!setup.ok()) return setup.status();
  auto channel = std::make_shared<Channel>(internal::ChannelCore::Create(*setup, /*insists=*/false));
  channel->why_not_rdma_ = std::string(to->why_not_rdma.message());
  return channel;
}

Channel::Channel(std::shared_ptr<internal::ChannelCore> core) : sender_(std::move(core)) {
  CoreOf(sender_).OnChannelCreated();
}

std::shared_ptr<internal::ChannelCore> Channel::core() const {
  return std::static_pointer_cast<internal::ChannelCore>(sender_);
}

Channel::~Channel() {
  CoreOf(sender_).OnChannelDestroyed();
  // A child after fork() leaks what is its parent's.
  if (!sender_->poller().usable_in_this_process())
    new std::shared_ptr<internal::CallSender>(std::move(sender_));
}

absl::StatusOr<Buffer> Channel::AllocateBuffer(size_t size_bytes) {
  if (!sender_->poller().usable_in_this_process())
    return absl::FailedPreconditionError("this process is a child made by fork() after the channel was");
  return Buffer::Allocate(sender_->runtime()->buffers(), size_bytes);
}

absl::StatusOr<RegisteredMemory> Channel::Register(const MemoryRange& range) {
  if (!sender_->poller().usable_in_this_process())
    return absl::FailedPreconditionError("this process is a child made by fork() after the channel was");
  return RegisteredMemory::Register(sender_->runtime(), range);
}

void Channel::Close() { CoreOf(sender_).CloseChannel(absl::CancelledError("the channel was closed")); }

void Channel::OnClosed(absl::AnyInvocable<void()> callback) { CoreOf(sender_).OnClosed(std::move(callback)); }

ChannelState Channel::state() const { return CoreOf(sender_).channel_state(); }

absl::Status Channel::why_not_ready() const {
  if (!sender_->poller().usable_in_this_process()) return absl::OkStatus();
  const absl::Status why = WhyNoneReady(CoreOf(sender_));
  if (why.ok()) return why;
  absl::Status status(why.code(), absl::StrCat("the channel to ", peer_address(),
                                               " is not ready: ", absl::string_view(why.message())));
  internal::KeepTextHere(status, "connecting");
  return status;
}

const std::string& Channel::peer_address() const { return sender_->peer_address(); }

PeerIdentity Channel::peer_identity() const {
  return sender_->poller().usable_in_this_process() ? *CoreOf(sender_).channel_peer_identity()
                                                    : PeerIdentity();
}

PollerStats Channel::poller_stats() const {
  transport::Poller& poller = sender_->poller();
  return poller.usable_in_this_process() ? poller.stats() : PollerStats();
}

}  // namespace hawser
