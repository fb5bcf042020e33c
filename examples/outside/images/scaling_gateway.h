#ifndef IMAGES_SCALING_GATEWAY_H_
#define IMAGES_SCALING_GATEWAY_H_

#include <memory>

#include "hawser/rpc/task.h"
#include "images/images.rpc.h"
#include "images/thread_pool.h"

namespace images {

// A Gateway. Its handlers are coroutines: while one awaits the store, the poller serves other calls. Threads
// of a pool make the thumbnails. (ServerOptions::executor would move every handler to other threads, also
// those that only forward an image.)
// Thread:   any; nothing blocks, so it may run on the pollers.
// Lifetime: outlives its server, like any service.
class ScalingGateway : public GatewayService {
 public:
  // `store`: if it shares the server's memory (ChannelOptions::server), images are forwarded without a copy.
  // `threads`: the number of threads that make thumbnails.
  ScalingGateway(std::shared_ptr<hawser::Channel> store, int threads);

  absl::Status Image(hawser::ServerContext& context, Gateway::ImageParams::Reader request,
                     Gateway::ImageResults::Builder reply) override;
  absl::Status Thumbnail(hawser::ServerContext& context, Gateway::ThumbnailParams::Reader request,
                         Gateway::ThumbnailResults::Builder reply) override;

 private:
  hawser::PendingCall<ImageStore::GetResults> Fetch(hawser::ServerContext& context, capnp::Text::Reader name);
  hawser::Task PassOn(hawser::DeferredCall call, Gateway::ImageParams::Reader request,
                      Gateway::ImageResults::Builder reply);
  hawser::Task Scale(hawser::DeferredCall call, Gateway::ThumbnailParams::Reader request,
                     Gateway::ThumbnailResults::Builder reply);

  ImageStoreStub store_;
  ThreadPool pool_;
};

}  // namespace images

#endif  // IMAGES_SCALING_GATEWAY_H_
