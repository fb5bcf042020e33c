#ifndef EXAMPLES_KV_BUCKET_H_
#define EXAMPLES_KV_BUCKET_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace kv {

// The number of the bucket that has the key, of a table of `buckets` (kv.capnp, Bucket).
inline uint64_t BucketOf(absl::string_view key, uint64_t buckets) {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a.
  for (const char byte : key) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash % buckets;
}

}  // namespace kv

#endif  // EXAMPLES_KV_BUCKET_H_
