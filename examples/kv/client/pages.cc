#include "examples/kv/client/pages.h"

#include <string>
#include <utility>

namespace kv {

absl::Status ForEachEntry(const KeyValueStub& kv, absl::string_view prefix,
                          absl::FunctionRef<void(KeyValue::Entry::Reader entry)> take) {
  std::string start;
  do {
    auto call = kv.List();
    call.request().setPrefix(std::string(prefix));
    call.request().setStart(start);
    auto page = call.Send().Wait();
    if (!page.ok()) return page.status();
    for (KeyValue::Entry::Reader entry : (*page)->getEntries()) take(entry);
    std::string next = (*page)->getNext();
    if (!next.empty() && (next <= start || (*page)->getEntries().size() == 0)) {
      return absl::DataLossError("the server's list does not get on: a page without a key, or from before");
    }
    start = std::move(next);
  } while (!start.empty());
  return absl::OkStatus();
}

}  // namespace kv
