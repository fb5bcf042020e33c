#ifndef HAWSER_OBSERVE_JSON_H_
#define HAWSER_OBSERVE_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "hawser/observe/history.h"
#include "hawser/observe/snapshot.capnp.h"

namespace hawser::observe {

// A snapshot as JSON, by Cap'n Proto's rules (capnp/compat/json.h): 64-bit numbers are strings, because
// JSON's are doubles; an enum is its name; what was not set is not there. Not kj's own encoder, which keeps
// each number as an object first and is too slow and too large for the histograms of thousands of methods.
// The output is UTF-8: a byte that is not is \ufffd (base/json_writer.h).
// Thread: any.

std::string JsonOf(wire::Snapshot::Reader snapshot);
// The fields of `snapshot` that `fields` names. With `history`, its curves as `history`: lists of numbers,
// one a point, with the points' ages; if `pollers` is among the fields, also of each poller and pool.
std::string JsonOf(wire::Snapshot::Reader snapshot, absl::Span<const absl::string_view> fields,
                   const History* history);

}  // namespace hawser::observe

#endif  // HAWSER_OBSERVE_JSON_H_
