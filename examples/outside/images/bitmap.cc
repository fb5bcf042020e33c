#include "images/bitmap.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace images {
namespace {

// Where box `index` of `boxes` begins, which divide `pixels` pixels among them; `boxes` is at most `pixels`.
uint32_t BoxBegin(uint64_t index, uint32_t boxes, uint32_t pixels) {
  return static_cast<uint32_t>(index * pixels / boxes);
}

}  // namespace

absl::Status CheckBitmap(Bitmap::Reader bitmap) {
  const uint64_t width = bitmap.getWidth();
  const uint64_t height = bitmap.getHeight();
  if (width < 1 || width > kSideMax || height < 1 || height > kSideMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", width, " by ", height, " pixels; each side has 1 to ", kSideMax));
  }
  const uint64_t bytes = bitmap.getPixels().size();
  if (bytes != width * height * kBytesPerPixel) {
    return absl::InvalidArgumentError(absl::StrCat("an image of ", width, " by ", height, " pixels takes ",
                                                   width * height * kBytesPerPixel, " bytes, not ", bytes));
  }
  return absl::OkStatus();
}

void Downscale(Bitmap::Reader bitmap, uint32_t width, Bitmap::Builder scaled) {
  const uint32_t from_width = bitmap.getWidth();
  const uint32_t from_height = bitmap.getHeight();
  // A getter of a Reader counts against ReadLimits each time, so none is called in the loop.
  const uint8_t* const from = bitmap.getPixels().begin();
  width = std::min(width, from_width);
  const uint32_t height = std::max<uint32_t>(1, BoxBegin(width, from_width, from_height));
  scaled.setWidth(width);
  scaled.setHeight(height);
  uint8_t* to = scaled.initPixels(width * height * kBytesPerPixel).begin();

  for (uint32_t row = 0; row < height; ++row) {
    const uint32_t top = BoxBegin(row, height, from_height);
    const uint32_t bottom = BoxBegin(row + 1, height, from_height);
    for (uint32_t column = 0; column < width; ++column) {
      const uint32_t left = BoxBegin(column, width, from_width);
      const uint32_t right = BoxBegin(column + 1, width, from_width);
      uint64_t sums[kBytesPerPixel] = {};
      for (uint32_t y = top; y < bottom; ++y) {
        const uint8_t* pixel = from + (uint64_t{y} * from_width + left) * kBytesPerPixel;
        for (uint32_t x = left; x < right; ++x) {
          for (uint64_t& sum : sums) sum += *pixel++;
        }
      }
      const uint64_t pixels = uint64_t{bottom - top} * (right - left);
      for (const uint64_t sum : sums) *to++ = static_cast<uint8_t>((sum + pixels / 2) / pixels);
    }
  }
}

}  // namespace images
