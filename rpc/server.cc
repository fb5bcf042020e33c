#include "hawser/rpc/server.h"

#include <utility>

#include "hawser/rpc/server/server_core.h"
#include "hawser/rpc/services/built_in_services.h"

namespace hawser {
namespace {

absl::Status ServerOfTheParent() {
  return absl::FailedPreconditionError(
      "this process is a child made by fork() after the server was; its sockets and threads are the "
      "parent's. Make the server after fork(): a daemon forks first");
}

}  // namespace

Server::Server(ServerOptions options)
    : core_(std::make_shared<internal::ServerCore>(std::move(options), internal::BuiltInServices())) {}

Server::~Server() {
  if (core_->usable_in_this_process()) {
    core_->End();
  } else {
    // A child after fork() must not end what is the parent's: leaked.
    new std::shared_ptr<internal::ServerCore>(std::move(core_));
  }
}

absl::Status Server::AddService(Service* service) {
  return core_->usable_in_this_process() ? core_->AddService(service) : ServerOfTheParent();
}

absl::StatusOr<std::string> Server::Listen(absl::string_view uri) {
  if (!core_->usable_in_this_process()) return ServerOfTheParent();
  return core_->Listen(uri);
}

std::vector<std::string> Server::addresses() const {
  if (!core_->usable_in_this_process()) return {};
  return core_->addresses();
}

std::string Server::why_not_rdma() const {
  return core_->usable_in_this_process() ? core_->why_not_rdma() : "";
}

void Server::SetHealth(absl::string_view service, bool serves) {
  if (core_->usable_in_this_process()) core_->SetHealth(service, serves);
}

absl::Status Server::Shutdown(absl::Time deadline) {
  return core_->usable_in_this_process() ? core_->Shutdown(deadline) : ServerOfTheParent();
}

absl::Status Server::Wait() { return core_->usable_in_this_process() ? core_->Wait() : ServerOfTheParent(); }

absl::StatusOr<Buffer> Server::AllocateBuffer(size_t size_bytes, absl::string_view uri) {
  if (!core_->usable_in_this_process()) return ServerOfTheParent();
  return core_->AllocateBuffer(size_bytes, uri);
}

absl::StatusOr<SharedMemory> Server::Share(size_t size_bytes) {
  if (!core_->usable_in_this_process()) return ServerOfTheParent();
  return core_->Share(size_bytes);
}

absl::StatusOr<SharedMemory> Server::Share(absl::Span<uint8_t> memory) {
  if (!core_->usable_in_this_process()) return ServerOfTheParent();
  return core_->Share(memory);
}

void Server::FillIn(observe::wire::Snapshot::Builder snapshot) const {
  if (core_->usable_in_this_process()) core_->FillIn(snapshot);
}

std::string Server::status_url() const { return core_->usable_in_this_process() ? core_->status_url() : ""; }

absl::StatusOr<std::shared_ptr<Runtime>> Server::RuntimeOn(const std::string& scheme,
                                                           const std::string& device) {
  return core_->RuntimeOn(scheme, device);
}

ServerStats Server::stats() const { return core_->usable_in_this_process() ? core_->stats() : ServerStats(); }

}  // namespace hawser
