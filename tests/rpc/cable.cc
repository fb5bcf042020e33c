#include "tests/rpc/cable.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>
#include <vector>

#include "hawser/tests/testing/proxy.h"
#include "hawser/tests/testing/test_fabric.h"
#include "hawser/transport/fabric/verbs/fabric.h"
#include "hawser/transport/fabric/verbs/library.h"
#include "hawser/transport/runtime.h"

namespace hawser {

// The rdma_cm_ids that connect, observed below the fabric. Never destroyed, because a fabric may outlive the
// test.
class Cable::Ends {
 public:
  static Ends& Get() {
    static auto* const ends = new Ends;
    return *ends;
  }

  const fabric::VerbsLibrary* library() const { return &library_; }

  void Cut() {
    std::lock_guard<std::mutex> lock(mutex_);
    for (rdma_cm_id* id : connected_) real_->rdma_disconnect(id);
  }
  void Pass(bool pass) {
    std::lock_guard<std::mutex> lock(mutex_);
    pass_ = pass;
  }
  int connections() {
    std::lock_guard<std::mutex> lock(mutex_);
    return connections_;
  }

 private:
  Ends() : real_(fabric::VerbsLibrary::Load().value()), library_(*real_) {
    library_.rdma_connect = [](rdma_cm_id* id, rdma_conn_param* parameters) {
      Ends& ends = Get();
      std::lock_guard<std::mutex> lock(ends.mutex_);
      ++ends.connections_;
      if (!ends.pass_) {
        errno = ECONNREFUSED;
        return -1;
      }
      ends.connected_.push_back(id);
      return ends.real_->rdma_connect(id, parameters);
    };
    library_.rdma_destroy_id = [](rdma_cm_id* id) {
      Ends& ends = Get();
      {
        std::lock_guard<std::mutex> lock(ends.mutex_);
        ends.connected_.erase(std::remove(ends.connected_.begin(), ends.connected_.end(), id),
                              ends.connected_.end());
      }
      return ends.real_->rdma_destroy_id(id);
    };
    // rdma_disconnect() uses it.
    library_.ibv_destroy_qp = [](ibv_qp* qp) {
      Ends& ends = Get();
      std::lock_guard<std::mutex> lock(ends.mutex_);
      return ends.real_->ibv_destroy_qp(qp);
    };
  }

  std::mutex mutex_;
  const fabric::VerbsLibrary* const real_;
  fabric::VerbsLibrary library_;
  std::vector<rdma_cm_id*> connected_;
  bool pass_ = true;
  int connections_ = 0;
};

struct Cable::Parts {
  std::string uri;
  std::unique_ptr<Proxy> proxy;                 // Set over TCP.
  std::shared_ptr<transport::Runtime> runtime;  // Set over RDMA.
  int connections_before = 0;

  ChannelOptions Through(ChannelOptions options) const {
    if (options.runtime == nullptr) options.runtime = runtime;
    return options;
  }
};

Cable::Cable(const std::string& uri) : parts_(std::make_unique<Parts>()) {
  if (TestScheme() == "tcp") {
    parts_->proxy = std::make_unique<Proxy>(uri);
    parts_->uri = parts_->proxy->uri();
    return;
  }
  parts_->uri = uri;
  parts_->runtime = transport::Runtime::CreateOn(NewFabric(), {}, /*start_threads=*/true).value();
  parts_->connections_before = Ends::Get().connections();
}

Cable::~Cable() {
  if (parts_->runtime != nullptr) Ends::Get().Pass(true);
}

std::shared_ptr<fabric::Fabric> Cable::NewFabric() {
  if (parts_->proxy != nullptr) return NewTestFabric();
  return fabric::NewVerbsFabric({.library = Ends::Get().library()}).value();
}

absl::StatusOr<std::shared_ptr<Channel>> Cable::Connect(ChannelOptions options) {
  return Channel::Connect(parts_->uri, parts_->Through(std::move(options)));
}

absl::StatusOr<std::shared_ptr<Channel>> Cable::Create(ChannelOptions options) {
  return Channel::Create(parts_->uri, parts_->Through(std::move(options)));
}

void Cable::Cut() { parts_->proxy != nullptr ? parts_->proxy->Cut() : Ends::Get().Cut(); }

void Cable::Pass(bool pass) { parts_->proxy != nullptr ? parts_->proxy->Pass(pass) : Ends::Get().Pass(pass); }

int Cable::connections() const {
  if (parts_->proxy != nullptr) return parts_->proxy->connections();
  return Ends::Get().connections() - parts_->connections_before;
}

}  // namespace hawser
