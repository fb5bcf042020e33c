// The methods, with how long their calls take.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hawser/observe/facts.h"
#include "hawser/observe/html.h"
#include "hawser/observe/method_order.h"
#include "hawser/observe/page.h"
#include "hawser/observe/picture.h"
#include "hawser/observe/tables.h"

namespace hawser::observe {
namespace {

constexpr size_t kMethodsMax = 100;

std::string Statuses(wire::Method::Reader method) {
  std::string text;
  for (const auto status : method.getStatuses()) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", View(status.getName()), " ", status.getCount());
  }
  return text;
}

// The calls that the process makes itself. Empty: none.
std::string OutgoingCalls(wire::Snapshot::Reader snapshot) {
  if (snapshot.getOutgoing().size() == 0) return "";
  BucketRange range;
  for (const auto outgoing : snapshot.getOutgoing()) range.Include(outgoing.getMethod().getLatency());
  Table table({{"target", Table::Kind::kLongText},
               {"method", Table::Kind::kLongText},
               ColumnOf(method::kCalls),
               {"status"},
               {"p50", kNumber},
               {"p99", kNumber},
               {"latency, of all calls", Table::Kind::kHtml}});
  for (const auto outgoing : snapshot.getOutgoing()) {
    const wire::Method::Reader method = outgoing.getMethod();
    const std::string p50 = PercentileText(method, 50), p99 = PercentileText(method, 99);
    const std::string title = absl::StrCat("calls by latency: p50 ", p50, ", p99 ", p99);
    table.Row({View(outgoing.getTarget()), View(method.getName()), method::kCalls.Text(method),
               Statuses(method), p50, p99, HistogramPicture(method.getLatency(), range, title)});
  }
  return absl::StrCat("<h2>Calls to others</h2>", table.Html(),
                      snapshot.getOutgoingLeftOut() == 0
                          ? ""
                          : absl::StrCat("<p>And ", snapshot.getOutgoingLeftOut(), " more methods.</p>"),
                      "<p class=soft>Those that this process makes, since it began. Latency is from when the "
                      "poller has a call to send to its result, with what it waits for a connection or a "
                      "free slot.</p>");
}

std::string ServedMethods(wire::Snapshot::Reader snapshot, size_t from) {
  const std::vector<wire::Method::Reader> methods = ByCalls(snapshot.getMethods(), SIZE_MAX);
  const Slice slice(methods.size(), from, kMethodsMax);
  BucketRange range;
  for (size_t i = slice.first; i < slice.end; ++i) range.Include(methods[i].getLatency());

  Table table({{"method", Table::Kind::kLongText},
               ColumnOf(method::kCalls),
               ColumnOf(method::kRunning),
               {"status"},
               {"p50", kNumber},
               {"p90", kNumber},
               {"p99", kNumber},
               {"p99.9", kNumber},
               {"latency, of all calls", Table::Kind::kHtml},
               ColumnOf(method::kIn),
               ColumnOf(method::kOut)});
  for (size_t i = slice.first; i < slice.end; ++i) {
    const wire::Method::Reader& method = methods[i];
    const std::string p50 = PercentileText(method, 50), p90 = PercentileText(method, 90),
                      p99 = PercentileText(method, 99), p999 = PercentileText(method, 99.9);
    const std::string title =
        absl::StrCat("calls by latency: p50 ", p50, ", p90 ", p90, ", p99 ", p99, ", p99.9 ", p999);
    table.Row({View(method.getName()), method::kCalls.Text(method), method::kRunning.Text(method),
               Statuses(method), p50, p90, p99, p999, HistogramPicture(method.getLatency(), range, title),
               method::kIn.Text(method), method::kOut.Text(method)});
  }
  return absl::StrCat(
      "<h2>Methods</h2>", slice.Links("/methods"), table.Html(), slice.Links("/methods"),
      "<p class=soft>Those with the most calls first. Latency is from the arrival of a request to its "
      "answer, since the server started; a bar is the number of calls that took so long. All pictures of "
      "this page have the same scale of time.</p>");
}

}  // namespace

std::string MethodsBody(wire::Snapshot::Reader snapshot, const History&, size_t from) {
  return absl::StrCat(snapshot.hasServer() ? ServedMethods(snapshot, from) : "",
                      from == 0 ? OutgoingCalls(snapshot) : "");
}

}  // namespace hawser::observe
