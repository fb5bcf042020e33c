#ifndef HAWSER_RPC_STATUS_PAGE_H_
#define HAWSER_RPC_STATUS_PAGE_H_

// The status page of a program that has no server, with a metric of its own:
//
//   const auto metrics = [&pages_read] {
//     return absl::StrCat("# TYPE pages_read_total counter\npages_read_total ", pages_read.load(), "\n");
//   };
//   auto page = hawser::StartStatusPage("0", metrics);  // "9090": that port, for this machine only. 0: any.
//   if (!page.ok()) return page.status();
//   return (*page)->url();  // "http://127.0.0.1:9090", until `page` is destroyed.

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/observe/status_server.h"

namespace hawser {

// Metrics of a program's own, beside those of the library: see observe::StatusServer::Options::metrics.
using OwnMetrics = std::function<std::string()>;

// Shows over HTTP what this process is doing, for a program that has no server: the calls that it makes, by
// target and method, its channels, what it uses, and its own metrics. A program with a server has the same,
// and more, at ServerOptions::status_address. `address` and errors: as observe::StatusServer::Start(), which
// also says who can read it: it has no passwords.
// Thread:   any.
// Lifetime: until the object is destroyed, and what `metrics` uses outlives that. A child made by fork()
//           starts its own.
absl::StatusOr<std::unique_ptr<observe::StatusServer>> StartStatusPage(absl::string_view address,
                                                                       OwnMetrics metrics = {});

}  // namespace hawser

#endif  // HAWSER_RPC_STATUS_PAGE_H_
