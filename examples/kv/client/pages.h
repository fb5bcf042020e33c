#ifndef EXAMPLES_KV_CLIENT_PAGES_H_
#define EXAMPLES_KV_CLIENT_PAGES_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "examples/kv/kv.rpc.h"

namespace kv {

// Lists every key that begins with `prefix`, in order, page by page, and calls `take` for each. Stops at the
// first failure.
absl::Status ForEachEntry(const KeyValueStub& kv, absl::string_view prefix,
                          absl::FunctionRef<void(KeyValue::Entry::Reader entry)> take);

}  // namespace kv

#endif  // EXAMPLES_KV_CLIENT_PAGES_H_
