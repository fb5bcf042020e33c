#include "hawser/rpc/server.h"

#include <utility>

#include "hawser/rpc/server_core.h"

namespace hawser {

Server::Server(ServerOptions options) : core_(std::make_unique<internal::ServerCore>(std::move(options))) {}

Server::~Server() {
  // A child after fork() must not end what is the parent's.
  if (!core_->usable_in_this_process()) core_.release();
}

absl::Status Server::AddService(Service* service) { return core_->AddService(service); }

absl::StatusOr<std::string> Server::Listen(absl::string_view uri) { return core_->Listen(uri); }

std::vector<std::string> Server::addresses() const { return core_->addresses(); }

std::string Server::why_not_rdma() const { return core_->why_not_rdma(); }

absl::Status Server::Shutdown(absl::Time deadline) { return core_->Shutdown(deadline); }

void Server::Wait() { core_->Wait(); }

absl::StatusOr<Buffer> Server::AllocateBuffer(size_t size_bytes, absl::string_view uri) {
  return core_->AllocateBuffer(size_bytes, uri);
}

ServerStats Server::stats() const { return core_->stats(); }

}  // namespace hawser
