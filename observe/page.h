#ifndef HAWSER_OBSERVE_PAGE_H_
#define HAWSER_OBSERVE_PAGE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "hawser/observe/history.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// The status page of a snapshot: one HTML document without scripts, and with nothing from elsewhere, that loads itself again
// every 5 s. Texts of peers are escaped.
// Thread: any.
std::string StatusPage(wire::Snapshot::Reader snapshot, const History& history);

// `text`, of a peer or not, as it may stand in HTML, also in an attribute: see EscapePeerText().
std::string EscapeHtml(absl::string_view text);

// "950 ns", "12.5 us", "3.20 s", "2 h 5 min".
std::string DurationText(int64_t ns);
// "512 B", "1.50 MiB".
std::string BytesText(uint64_t bytes);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_PAGE_H_
