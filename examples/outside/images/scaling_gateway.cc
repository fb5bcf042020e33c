#include "images/scaling_gateway.h"

#include <iostream>
#include <utility>

#include "images/bitmap.h"

namespace images {
namespace {

// Each thumbnail that waits holds an image.
constexpr size_t kQueuedThumbnailsMax = 16;

// The caller gets the store's error about its request. The text of any other failure may contain the store's
// address, so only the operator gets it.
absl::Status ForCaller(const absl::Status& status) {
  if (absl::IsNotFound(status) || absl::IsInvalidArgument(status)) return status;
  std::cerr << "gateway: " << status << std::endl;
  return absl::Status(status.code(), "the image store did not answer; try again later");
}

}  // namespace

ScalingGateway::ScalingGateway(std::shared_ptr<hawser::Channel> store, int threads)
    : store_(std::move(store)), pool_(threads, kQueuedThumbnailsMax) {}

absl::Status ScalingGateway::Image(hawser::ServerContext& context, Gateway::ImageParams::Reader request,
                                   Gateway::ImageResults::Builder reply) {
  return PassOn(context.Defer(), request, reply);
}

absl::Status ScalingGateway::Thumbnail(hawser::ServerContext& context,
                                       Gateway::ThumbnailParams::Reader request,
                                       Gateway::ThumbnailResults::Builder reply) {
  return Scale(context.Defer(), request, reply);
}

hawser::PendingCall<ImageStore::GetResults> ScalingGateway::Fetch(hawser::ServerContext& context,
                                                                  capnp::Text::Reader name) {
  auto get = store_.Get(hawser::CallOptions::For(context));
  get.request().setName(name);
  return get.Send();
}

hawser::Task ScalingGateway::PassOn(hawser::DeferredCall call, Gateway::ImageParams::Reader request,
                                    Gateway::ImageResults::Builder reply) {
  auto found = co_await Fetch(call.context(), request.getName());
  if (!found.ok()) co_return ForCaller(found.status());
  const Bitmap::Reader image = (*found)->getImage();
  const capnp::Data::Reader pixels = image.getPixels();
  Bitmap::Builder passed = reply.initImage();
  passed.setWidth(image.getWidth());
  passed.setHeight(image.getHeight());
  passed.adoptPixels(call.context().Attach(pixels, std::move(*found).Keep()));
  co_return absl::OkStatus();
}

hawser::Task ScalingGateway::Scale(hawser::DeferredCall call, Gateway::ThumbnailParams::Reader request,
                                   Gateway::ThumbnailResults::Builder reply) {
  if (request.getWidth() == 0) co_return absl::InvalidArgumentError("a thumbnail of 0 pixels' width");
  auto found = co_await Fetch(call.context(), request.getName());
  if (!found.ok()) co_return ForCaller(found.status());

  if (!co_await pool_.Enter()) {
    co_return absl::ResourceExhaustedError("too many thumbnails are being made; try again later");
  }
  // From here on this runs on a thread of the pool. The caller may have cancelled the call while it was
  // queued.
  if (call.context().cancelled()) co_return absl::CancelledError();
  const Bitmap::Reader image = (*found)->getImage();
  if (absl::Status status = CheckBitmap(image); !status.ok()) {
    co_return absl::InternalError(status.message());
  }
  Downscale(image, request.getWidth(), reply.initImage());
  co_return absl::OkStatus();
}

}  // namespace images
