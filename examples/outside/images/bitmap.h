#ifndef IMAGES_BITMAP_H_
#define IMAGES_BITMAP_H_

#include <cstdint>

#include "absl/status/status.h"
#include "images/images.capnp.h"

namespace images {

constexpr uint32_t kBytesPerPixel = 3;
constexpr uint32_t kSideMax = 65536;

// InvalidArgument: a side is not 1 to kSideMax pixels, or the pixels are not as many as the sides say.
absl::Status CheckBitmap(Bitmap::Reader bitmap);

// Fills `scaled` with `bitmap`, scaled down to `width` pixels, or as it is if it is not wider. Each pixel is
// the mean of the box that it covers. Takes some nanoseconds for each pixel of `bitmap`: too long for a
// poller. CheckBitmap() has passed `bitmap`, and `width` is at least 1.
void Downscale(Bitmap::Reader bitmap, uint32_t width, Bitmap::Builder scaled);

}  // namespace images

#endif  // IMAGES_BITMAP_H_
