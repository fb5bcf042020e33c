#ifndef HAWSER_RPC_SERVER_EXTENSIONS_H_
#define HAWSER_RPC_SERVER_EXTENSIONS_H_

#include <memory>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/options.h"
#include "hawser/rpc/server_extension.h"
#include "hawser/transport/clock/environment.h"

namespace hawser::internal {

// The services of Hawser's own that a server has: first those of the list that each server is given, then
// those that the program has named, ServerOptions::extensions. A service of the application with one of
// their interfaces takes its place.
// Thread:   any.
// Lifetime: owned by ServerCore, until the last handler has returned.
// Locks:    none of its own; ServerCore says where those of its extensions stand.
class Extensions {
 public:
  // `options` and `host` outlive it.
  Extensions(const ServerExtensionList& built_in, const ServerOptions& options,
             transport::Environment& environment, ServerExtensionHost& host);
  Extensions(const Extensions&) = delete;
  Extensions& operator=(const Extensions&) = delete;

  // Opens all of them. Adds the methods of those whose interface is not in `methods`, which has those of the
  // application.
  void AddTo(MethodTable& methods);
  // These call all of them: see ServerExtension.
  void SetHealth(absl::string_view service, bool serves);
  void Close(absl::Time deadline);
  void End();

 private:
  const std::vector<std::shared_ptr<ServerExtension>> all_;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_SERVER_EXTENSIONS_H_
