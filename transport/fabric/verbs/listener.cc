#include "hawser/transport/fabric/verbs/listener.h"

#include <netinet/in.h>

#include <cerrno>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "hawser/transport/fabric/verbs/connect_request.h"
#include "hawser/transport/fabric/verbs/errors.h"

namespace hawser::fabric {
namespace {

// How often a port is chosen, if any will do.
constexpr int kPortTries = 8;

absl::string_view WhyNotListening(int error) {
  switch (error) {
    case EADDRINUSE:
      return "another program, or another listener of this one, has the port";
    case EACCES:
    case EPERM:
      return "ports below 1024 need CAP_NET_BIND_SERVICE; take a higher one";
    case EADDRNOTAVAIL:
      return "no interface of this machine has that address, or another listener has the port of all "
             "addresses";
    case ENODEV:
      return "the interface with that address has no RDMA device (loopback has none; see `rdma link`), or "
             "that has no GID of this address, of RoCE v2 where the device knows it (hawser-doctor lists "
             "them)";
    case EAFNOSUPPORT:
      return "an RDMA device of this machine has no IPv6 (eRDMA has none); take an address of IPv4";
    default:
      return "";
  }
}

absl::Status ListenError(const SocketAddress& address, absl::string_view call, int error) {
  // Every machine has the unspecified address, so another listener has the port, perhaps for one address.
  if (error == EADDRNOTAVAIL && address.is_unspecified()) error = EADDRINUSE;
  // ENODEV: the address belongs to no device of this fabric.
  absl::Status status =
      VerbsError(absl::StrCat("listen on ", address.ToString()), call, error, WhyNotListening(error));
  return error == ENODEV || error == EAFNOSUPPORT ? absl::InvalidArgumentError(status.message()) : status;
}

}  // namespace

VerbsListener::VerbsListener(VerbsCompletionQueue& completion_queue, int backlog, ListenHandler& handler)
    : completion_queue_(completion_queue),
      handler_(handler),
      token_(completion_queue.Register(*this)),
      backlog_(backlog) {}

VerbsListener::~VerbsListener() {
  completion_queue_.Unregister(token_);
  if (!completion_queue_.device().in_forked_child()) Stop();
}

absl::StatusOr<std::unique_ptr<VerbsListener>> VerbsListener::Create(VerbsCompletionQueue& completion_queue,
                                                                     const SocketAddress& address,
                                                                     int backlog, ListenHandler& handler) {
  if (absl::Status status =
          completion_queue.device().CheckProcess(absl::StrCat("listen on ", address.ToString()));
      !status.ok()) {
    return status;
  }
  std::unique_ptr<VerbsListener> listener(new VerbsListener(completion_queue, backlog, handler));
  if (absl::Status status = listener->Listen(address); !status.ok()) return status;
  return listener;
}

absl::Status VerbsListener::Listen(const SocketAddress& address) {
  const VerbsLibrary& verbs = completion_queue_.device().verbs();
  if (address.family() != AF_INET && address.family() != AF_INET6) {
    return ListenError(address, "rdma_bind_addr()", EADDRNOTAVAIL);
  }
  if (absl::Status status = completion_queue_.Enter(); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat("listen on ", address.ToString(), ": ", status.message()));
  }
  entered_ = true;
  int error = 0;
  absl::Status listening = ListenOnFamily(address, &error);
  // Listening on all addresses is listening on each device of the machine, and one that has no IPv6 (erdma:
  // erdma_create_listen()) makes the call fail for all of them (the kernel's cma_listen_on_all()).
  if (error == EAFNOSUPPORT && address.family() == AF_INET6 && address.is_unspecified()) {
    verbs.rdma_destroy_id(std::exchange(id_, nullptr));
    shortfall_ = absl::UnimplementedError(
        absl::StrCat(listening.message(), "; it listens on all addresses of IPv4 instead"));
    const sockaddr_in all = {.sin_family = AF_INET, .sin_port = htons(address.port())};
    listening = ListenOnFamily(SocketAddress(reinterpret_cast<const sockaddr*>(&all), sizeof(all)), &error);
  }
  if (!listening.ok()) return listening;
  completion_queue_.device().MarkPresent();
  address_ = LocalAddress(*id_);
  return absl::OkStatus();
}

// For port 0 rdma_bind_addr() chooses a port that is free among RDMA listeners (the kernel's
// cma_alloc_any_port()). An iWARP device then listens at that port of TCP, which a connection or another
// program may have.
absl::Status VerbsListener::ListenOnFamily(const SocketAddress& address, int* error) {
  for (int tries = address.port() == 0 ? kPortTries : 1;; --tries) {
    *error = 0;
    absl::Status listening = ListenOnce(address, error);
    if (*error != EADDRINUSE || tries == 1) return listening;
    completion_queue_.device().verbs().rdma_destroy_id(std::exchange(id_, nullptr));
  }
}

absl::Status VerbsListener::ListenOnce(const SocketAddress& address, int* error) {
  const VerbsLibrary& verbs = completion_queue_.device().verbs();
  if (verbs.rdma_create_id(completion_queue_.channel()->get(), &id_, VerbsCompletionQueue::CmContext(token_),
                           RDMA_PS_TCP) != 0) {
    const int create_error = errno;
    id_ = nullptr;
    return ListenError(address, "rdma_create_id()", create_error);
  }
  // [::] accepts IPv4 peers, too, as over TCP; their addresses are plain IPv4. (An iWARP device may ignore
  // this option.)
  int v6_only = address.is_unspecified() ? 0 : 1;
  if (address.family() == AF_INET6 &&
      verbs.rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &v6_only, sizeof(v6_only)) != 0) {
    return ListenError(address, "rdma_set_option()", errno);
  }
  SocketAddress bound = address;
  if (verbs.rdma_bind_addr(id_, const_cast<sockaddr*>(bound.get())) != 0) {
    return ListenError(address, "rdma_bind_addr()", errno);
  }
  // An address without a device, such as loopback, could listen, but no peer could reach it.
  if (id_->verbs == nullptr && !address.is_unspecified())
    return ListenError(address, "rdma_bind_addr()", ENODEV);
  if (ibv_context* context = id_->verbs; context != nullptr && !completion_queue_.device().Is(context)) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen on ", address.ToString(), ": that address belongs to RDMA device ",
                     context->device->name, ", but this program uses ", completion_queue_.device().name(),
                     " (RuntimeOptions::rdma_device, HAWSER_RDMA_DEVICE)"));
  }
  if (verbs.rdma_listen(id_, backlog_) == 0) return absl::OkStatus();
  *error = errno;
  return ListenError(address, "rdma_listen()", *error);
}

void VerbsListener::Stop() {
  if (id_ != nullptr) completion_queue_.device().verbs().rdma_destroy_id(std::exchange(id_, nullptr));
  if (std::exchange(entered_, false)) completion_queue_.Leave();
}

void VerbsListener::OnLost(const absl::Status&) {
  if (!completion_queue_.device().gone()) return;  // A completion queue overflowed: a listener uses none.
  Stop();
  completion_queue_.TryLater();
}

void VerbsListener::OnTryAgain() {
  if (entered_ || Listen(address_).ok()) return;
  Stop();
  completion_queue_.TryLater();
}

void VerbsListener::OnCmEvent(VerbsCmEvent& event) {
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  handler_.OnConnectRequest(
      std::make_unique<VerbsConnectRequest>(completion_queue_.channel(), std::move(event)));
}

void VerbsConnectRequest::Reject(absl::string_view private_data) {
  rdma_cm_id* const id = TakeId();
  VerbsDevice& device = channel_->device();
  if (id == nullptr || device.in_forked_child()) return;
  const std::string data = RejectionData(private_data.substr(0, kRejectPrivateDataMax), device.iwarp());
  device.verbs().rdma_reject(id, data.data(), static_cast<uint8_t>(data.size()));
  device.verbs().rdma_destroy_id(id);
}

}  // namespace hawser::fabric
