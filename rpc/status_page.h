#ifndef HAWSER_RPC_STATUS_PAGE_H_
#define HAWSER_RPC_STATUS_PAGE_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/observe/status_server.h"

namespace hawser {

// Metrics of a program's own, beside those of the library: see observe::StatusServer::Options::metrics.
using OwnMetrics = std::function<std::string()>;

// Shows over HTTP what this process is doing, for a program that has no server: the calls that it makes, by target and method,
// its channels, what it uses, and its own metrics. A program with a server has the same, and more, at
// ServerOptions::status_address.
//
//   absl::StatusOr<std::unique_ptr<hawser::observe::StatusServer>> page = hawser::StartStatusPage("9090");
//
// `address` and errors: as observe::StatusServer::Start(). It ends when the object is destroyed.
absl::StatusOr<std::unique_ptr<observe::StatusServer>> StartStatusPage(absl::string_view address,
                                                                       OwnMetrics metrics = {});

}  // namespace hawser

#endif  // HAWSER_RPC_STATUS_PAGE_H_
