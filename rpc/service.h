#ifndef HAWSER_RPC_SERVICE_H_
#define HAWSER_RPC_SERVICE_H_

// A handler. Its class derives from PagesService, which is generated for `interface Pages`:
//
//   absl::Status Read(hawser::ServerContext&, Pages::ReadParams::Reader request,
//                     Pages::ReadResults::Builder reply) override {
//     if (request.getNumber() == 0) return absl::NotFoundError("pages are counted from 1");
//     reply.setPage(Bytes(std::to_string(request.getNumber())));
//     return absl::OkStatus();
//   }

#include "absl/status/status.h"
#include "hawser/rpc/method.h"
#include "hawser/rpc/method_table.h"
#include "hawser/rpc/server_context.h"
#include "hawser/rpc/wire/exceptions.h"

namespace hawser {

// What a server implements; generated code derives FooService from it for `interface Foo`.
// Thread:   handlers run on the poller threads of the server, or on its executor; several may run at once.
// Lifetime: outlives the Server, or Channel, that it was given to.
class Service {
 public:
  virtual ~Service() = default;

  // Adds every method of this service, inherited ones too. Generated.
  virtual void AddMethods(MethodTable& table) = 0;
};

// Runs `handler(request, reply)` with the typed request and reply of `context`, and turns whatever it throws
// into a Status: Cap'n Proto validates a message while it is read, so a hostile one throws inside the
// handler. Generated code calls it; hawser::Task does the same (rpc/task.h). The log has the text of the
// exception. The caller does not get it, because it may name what the caller must not know: return a Status
// for what the caller should read.
//   kj::Exception  -> InvalidArgument (a malformed message, or a reply larger than Cap'n Proto can hold),
//                     ResourceExhausted (a limit of ReadLimits), Unimplemented, Unavailable or Internal
//   anything else  -> Internal
template <typename Params, typename Results, typename Handler>
absl::Status InvokeHandler(ServerContext& context, Handler&& handler) {
  try {
    return handler(context.request<Params>(), context.reply<Results>());
  } catch (...) {
    return internal::StatusOfHandlersException(context);
  }
}

}  // namespace hawser

#endif  // HAWSER_RPC_SERVICE_H_
