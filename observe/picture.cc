#include "hawser/observe/picture.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/units.h"

namespace hawser::observe {
namespace {

// Where `ns` is among the bounds, in buckets: 2.5 is the middle of the third bucket.
double PositionOf(int64_t ns, capnp::List<int64_t>::Reader bounds) {
  int64_t low = 0;
  for (unsigned i = 0; i < bounds.size(); low = bounds[i++]) {
    if (bounds[i] > ns) return i + static_cast<double>(ns - low) / static_cast<double>(bounds[i] - low);
  }
  return bounds.size();
}

constexpr double kBarWidth = 4, kBarsHeight = 30, kLeft = 34, kAxisHeight = 14;

// A mark and its time at each power of ten; where these are close to each other, at each second one.
void AddTimeAxis(capnp::List<int64_t>::Reader bounds, const BucketRange& range, std::string& svg) {
  // A power of ten is some 13 buckets, and a label as wide as 9.
  const bool each = range.last - range.first < 60;
  int number = 0;
  for (int64_t ns = 1000; ns <= 100'000'000'000; ns *= 10, ++number) {
    const double at = PositionOf(ns, bounds);
    if (at < static_cast<double>(range.first) || at > static_cast<double>(range.last + 1)) continue;
    const double x = kLeft + (at - static_cast<double>(range.first)) * kBarWidth;
    absl::StrAppendFormat(&svg, "<line x1=%.1f x2=%.1f y1=%.0f y2=%.0f stroke=\"var(--soft)\"/>", x, x,
                          kBarsHeight, kBarsHeight + 3);
    if (!each && number % 2 == 0) continue;
    absl::StrAppendFormat(&svg, "<text x=%.1f y=%.0f text-anchor=middle>%s</text>", x, kBarsHeight + 12,
                          ns < 1'000'000'000 ? DurationText(ns) : absl::StrCat(ns / 1'000'000'000, " s"));
  }
}

}  // namespace

void BucketRange::Include(wire::Histogram::Reader histogram) {
  const auto counts = histogram.getCounts();
  for (unsigned i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    first = std::min<size_t>(first, i);
    last = std::max<size_t>(last, i);
  }
}

std::string HistogramPicture(wire::Histogram::Reader histogram, const BucketRange& range,
                             absl::string_view title) {
  const auto counts = histogram.getCounts();
  const auto bounds = histogram.getBoundsNs();
  uint64_t most = 0;
  for (uint64_t count : counts) most = std::max(most, count);
  if (most == 0 || range.empty()) return "";
  // So that a label at either end of the axis has room.
  const double width = kLeft + static_cast<double>(range.last - range.first + 1) * kBarWidth + 20;
  std::string svg =
      absl::StrFormat("<svg role=img width=%.0f height=%.0f viewBox=\"0 0 %.0f %.0f\"><title>%s</title>",
                      width, kBarsHeight + kAxisHeight, width, kBarsHeight + kAxisHeight, title);
  absl::StrAppendFormat(
      &svg, "<text x=%.0f y=9 text-anchor=end>%s</text><text x=%.0f y=%.0f text-anchor=end>0</text>",
      kLeft - 4, CountText(most), kLeft - 4, kBarsHeight);
  absl::StrAppendFormat(&svg, "<path d=\"M%.0f 0V%.0fH%.0f\" fill=none stroke=\"var(--soft)\"/>", kLeft - 1,
                        kBarsHeight, width - 20);
  for (size_t i = range.first; i <= range.last && i < counts.size(); ++i) {
    const uint64_t count = counts[static_cast<unsigned>(i)];
    if (count == 0) continue;
    const double height = std::max(1.0, static_cast<double>(count) / static_cast<double>(most) * kBarsHeight);
    const bool has_bound = i < bounds.size() && bounds[static_cast<unsigned>(i)] != INT64_MAX;
    absl::StrAppendFormat(
        &svg, "<rect x=%.0f y=%.1f width=%.0f height=%.1f><title>%s: %u</title></rect>",
        kLeft + static_cast<double>(i - range.first) * kBarWidth, kBarsHeight - height, kBarWidth - 1, height,
        has_bound ? absl::StrCat("below ", DurationText(bounds[static_cast<unsigned>(i)])) : "longer", count);
  }
  AddTimeAxis(bounds, range, svg);
  return svg + "</svg>";
}

std::string PartsPicture(wire::Call::Reader call) {
  const double all = std::max<double>(1, static_cast<double>(call.getAgeNs()));
  constexpr double kWidth = 120;
  const std::array<std::pair<int64_t, const char*>, 3> parts = {
      {{call.getQueuedNs(), "--bar2"}, {call.getHandlerNs(), "--bar"}, {call.getDeferredNs(), "--bar3"}}};
  const auto part = [&](const auto& fact) { return absl::StrCat(fact.column, " ", fact.Text(call)); };
  std::string svg = absl::StrFormat("<svg role=img width=%.0f height=10><title>%s, %s, %s</title>", kWidth,
                                    part(call::kQueued), part(call::kHandler), part(call::kDeferred));
  double x = 0;
  for (const auto& [ns, colour] : parts) {
    const double width = static_cast<double>(ns) / all * kWidth;
    absl::StrAppendFormat(&svg, "<rect x=%.1f y=0 width=%.1f height=10 style=\"fill:var(%s)\"/>", x, width,
                          colour);
    x += width;
  }
  return svg + "</svg>";
}

std::string PartsLegend() {
  const auto part = [](const char* colour, const char* name) {
    return absl::StrCat("<svg width=10 height=10 aria-hidden=true><rect width=10 height=10 style=\"fill:var(",
                        colour, ")\"/></svg> ", name, " ");
  };
  return absl::StrCat("<p class=\"soft legend\">",
                      part("--bar2", "waited for the executor, or for other handlers on its poller"),
                      part("--bar", "in the handler"), part("--bar3", "deferred"), "</p>");
}

std::string CurvePicture(absl::string_view name, const std::vector<double>& values, int64_t span_ns,
                         const std::function<std::string(double)>& text) {
  constexpr double kWidth = 300, kHeight = 60;
  const double most = *std::max_element(values.begin(), values.end());
  const double scale = std::max(1e-9, most);
  std::string points;
  for (size_t i = 0; i < values.size(); ++i) {
    absl::StrAppendFormat(
        &points, "%.1f,%.1f ",
        kWidth * static_cast<double>(i) / std::max<double>(1, static_cast<double>(values.size() - 1)),
        kHeight - 1 - values[i] / scale * (kHeight - 2));
  }
  const std::string now = text(values.back()), at_most = text(most);
  return absl::StrCat("<figure><figcaption>", name, ": <b>", now,
                      "</b></figcaption><svg class=curve role=img viewBox=\"0 0 300 60\" ",
                      "preserveAspectRatio=none width=300 height=60><title>", name, ": now ", now,
                      ", at most ", at_most,
                      "</title><polyline fill=none stroke=\"var(--bar)\" stroke-width=1.5 points=\"", points,
                      "\"/></svg><div class=\"soft axis\"><span>the last ", DurationText(span_ns),
                      "</span><span>at most ", at_most, "</span></div></figure>");
}

}  // namespace hawser::observe
