#ifndef HAWSER_OBSERVE_PICTURE_H_
#define HAWSER_OBSERVE_PICTURE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// Pictures of the pages: SVG, with a title for those who cannot see them. No text of a peer is in them.
// Thread: any.

// The buckets that the histograms of one page show, so that they can be compared: from the first one that is
// not empty to the last.
struct BucketRange {
  void Include(wire::Histogram::Reader histogram);
  bool empty() const { return first > last; }

  size_t first = SIZE_MAX;
  size_t last = 0;
};

// Bars by length of time, with the time below them and the count of the highest one at the left. `title` is
// HTML. Empty: nothing was counted.
std::string HistogramPicture(wire::Histogram::Reader histogram, const BucketRange& range,
                             absl::string_view title);

// Where the time of an ended call went: waiting, in the handler, deferred. See PartsLegend().
std::string PartsPicture(wire::Call::Reader call);
std::string PartsLegend();

// A curve over the last `span_ns`, from 0 to its largest value, with that value and the present one below it.
// `name` is HTML, `text` makes one of a value. `values` is not empty.
std::string CurvePicture(absl::string_view name, const std::vector<double>& values, int64_t span_ns,
                         const std::function<std::string(double)>& text);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_PICTURE_H_
