#ifndef HAWSER_RPC_CLIENT_CHANNEL_SETUP_H_
#define HAWSER_RPC_CLIENT_CHANNEL_SETUP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "hawser/rpc/options.h"
#include "hawser/transport/runtime.h"
#include "hawser/transport/security.h"
#include "hawser/transport/uri.h"

namespace hawser::internal {

struct Serving;

// What a channel that dials is made of: its options, checked, and what they name.
// Thread:   any.
// Lifetime: a value; gone when Create() or Connect() returns.
struct ChannelSetup {
  // For a channel to `uri`. InvalidArgument: an option is out of its range, or two do not fit. Other codes:
  // this machine lacks what they ask for.
  static absl::StatusOr<ChannelSetup> From(absl::string_view uri, ChannelOptions options);

  // The runtime for `uri`: that of `options`, or the process's own. InvalidArgument: that of `options` serves
  // another network. Other codes: this machine lacks what the network needs.
  static absl::StatusOr<std::shared_ptr<transport::Runtime>> RuntimeFor(const transport::Uri& uri,
                                                                        const ChannelOptions& options);

  // The name of its connection `number`, for lists.
  std::string NameOf(int number) const;

  transport::Uri uri;
  std::string address;     // `uri` as text.
  ChannelOptions options;  // Without `runtime`.
  std::shared_ptr<transport::Runtime> runtime;
  transport::Security security;
  std::shared_ptr<Serving> offers;  // Null: no services.
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_CHANNEL_SETUP_H_
