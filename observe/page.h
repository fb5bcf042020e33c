#ifndef HAWSER_OBSERVE_PAGE_H_
#define HAWSER_OBSERVE_PAGE_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/observe/history.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// One of the status pages: what it is called, and what of the snapshot it shows.
// Thread: any.
struct Page {
  const char* path;       // "/methods".
  const char* json_path;  // "/methods.json".
  const char* title;
  // The fields of the snapshot that the page shows. The same ones are in its JSON.
  absl::Span<const absl::string_view> fields;
  // Whether it shows the history, which then is in the JSON as `history`.
  bool has_history;
  // What stands below the navigation. `from`: the first row of a long list.
  std::string (*body)(wire::Snapshot::Reader snapshot, const History& history, size_t from);
};

// All of them, the overview first.
absl::Span<const Page> Pages();

// One HTML document without scripts, and with nothing from elsewhere, that loads itself again every 5 s.
// Texts of peers are escaped.
std::string ToHtml(const Page& page, wire::Snapshot::Reader snapshot, const History& history, size_t from);
// What the page shows, for programs: see json.h.
std::string ToJson(const Page& page, wire::Snapshot::Reader snapshot, const History& history);

// A line for each poller that did not answer, which says what holds it: the lists of the snapshot lack what
// is on it. Empty: all have answered.
std::string HeldPollers(wire::Snapshot::Reader snapshot);

// The bodies, each in a file of its own.
std::string OverviewBody(wire::Snapshot::Reader snapshot, const History& history, size_t from);
std::string MethodsBody(wire::Snapshot::Reader snapshot, const History& history, size_t from);
std::string ConnectionsBody(wire::Snapshot::Reader snapshot, const History& history, size_t from);
std::string CallsBody(wire::Snapshot::Reader snapshot, const History& history, size_t from);
std::string PollersBody(wire::Snapshot::Reader snapshot, const History& history, size_t from);
std::string ConfigurationBody(wire::Snapshot::Reader snapshot, const History& history, size_t from);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_PAGE_H_
