#ifndef DOCS_SNIPPETS_PAGE_STORE_H_
#define DOCS_SNIPPETS_PAGE_STORE_H_

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "docs/snippets/pages.rpc.h"
#include "hawser/rpc/channel.h"
#include "hawser/rpc/server.h"

namespace pages {

inline capnp::Data::Reader Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}
inline std::string Text(capnp::Data::Reader bytes) { return {bytes.asChars().begin(), bytes.size()}; }

// The simplest Pages service. Snippets about other subjects derive from it, or call it.
class PlainPages : public PagesService {
 public:
  absl::Status Read(hawser::ServerContext&, Pages::ReadParams::Reader request,
                    Pages::ReadResults::Builder reply) override {
    absl::MutexLock lock(&mutex_);
    const auto found = pages_.find(request.getNumber());
    if (found == pages_.end()) return absl::NotFoundError("no such page");
    reply.setPage(Bytes(found->second));
    return absl::OkStatus();
  }

  absl::Status Write(hawser::ServerContext&, Pages::WriteParams::Reader request,
                     Pages::WriteResults::Builder) override {
    absl::MutexLock lock(&mutex_);
    pages_[request.getNumber()] = Text(request.getPage());
    return absl::OkStatus();
  }

  absl::Status Subscribe(hawser::ServerContext&, Pages::SubscribeParams::Reader,
                         Pages::SubscribeResults::Builder) override {
    return absl::UnimplementedError("nothing is pushed here");
  }

 private:
  absl::Mutex mutex_;
  std::map<uint64_t, std::string> pages_ ABSL_GUARDED_BY(mutex_);
};

// Waits until `condition`, which another thread makes true, holds; false after a minute.
inline bool Eventually(const std::function<bool()>& condition) {
  const absl::Time give_up = absl::Now() + absl::Minutes(1);
  while (!condition()) {
    if (absl::Now() > give_up) return false;
    sched_yield();
  }
  return true;
}

// Serves `service` on a free port of this machine.
inline std::string Serve(hawser::Server& server, hawser::Service& service) {
  const absl::Status added = server.AddService(&service);
  if (!added.ok()) throw std::runtime_error(added.ToString());
  const absl::StatusOr<std::string> uri = server.Listen("tcp://127.0.0.1:0");
  if (!uri.ok()) throw std::runtime_error(uri.status().ToString());
  return *uri;
}

inline std::shared_ptr<hawser::Channel> Connect(const std::string& uri, hawser::ChannelOptions options = {}) {
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel =
      hawser::Channel::Connect(uri, std::move(options));
  if (!channel.ok()) throw std::runtime_error(channel.status().ToString());
  return *std::move(channel);
}

inline absl::Status Write(const PagesStub& stub, uint64_t number, const std::string& page) {
  auto call = stub.Write();
  call.request().setNumber(number);
  call.request().setPage(Bytes(page));
  return call.Send().Wait().status();
}

inline std::string Read(const PagesStub& stub, uint64_t number) {
  auto call = stub.Read();
  call.request().setNumber(number);
  auto reply = call.Send().Wait();
  return reply.ok() ? Text((*reply)->getPage()) : reply.status().ToString();
}

}  // namespace pages

#endif  // DOCS_SNIPPETS_PAGE_STORE_H_
