#include "hawser/tls/hello_limit.h"

#include <algorithm>

namespace hawser::tls {
namespace {

// Content types and a message type (RFC 8446, B.1 and B.3).
constexpr uint8_t kChangeCipherSpec = 20;
constexpr uint8_t kHandshake = 22;
constexpr uint8_t kClientHello = 1;

// Moves bytes from the front of `from` to `to`, until that has all of its.
template <size_t kBytes>
void Take(absl::Span<const uint8_t>& from, std::array<uint8_t, kBytes>& to, size_t& have) {
  const size_t count = std::min(from.size(), kBytes - have);
  std::copy_n(from.begin(), count, to.begin() + have);
  from.remove_prefix(count);
  have += count;
}

}  // namespace

bool HelloLimit::Allows(absl::Span<const uint8_t> bytes) {
  while (!is_over_ && !bytes.empty()) {
    if (record_left_bytes_ == 0) {
      Take(bytes, record_, record_header_bytes_);
      if (record_header_bytes_ < record_.size()) return true;
      record_header_bytes_ = 0;
      record_left_bytes_ = static_cast<size_t>(record_[3]) << 8 | record_[4];
      is_over_ = record_[0] != kHandshake && record_[0] != kChangeCipherSpec;
      continue;
    }
    const size_t count = std::min(bytes.size(), record_left_bytes_);
    if (record_[0] == kHandshake && !AllowsMessages(bytes.subspan(0, count))) return false;
    record_left_bytes_ -= count;
    bytes.remove_prefix(count);
  }
  return true;
}

bool HelloLimit::AllowsMessages(absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (message_left_bytes_ == 0) {
      Take(bytes, message_, message_header_bytes_);
      if (message_header_bytes_ < message_.size()) return true;
      message_header_bytes_ = 0;
      message_left_bytes_ =
          static_cast<size_t>(message_[1]) << 16 | static_cast<size_t>(message_[2]) << 8 | message_[3];
      if (message_[0] == kClientHello && message_left_bytes_ > kHelloBytesMax) return false;
      continue;
    }
    const size_t count = std::min(bytes.size(), message_left_bytes_);
    message_left_bytes_ -= count;
    bytes.remove_prefix(count);
  }
  return true;
}

}  // namespace hawser::tls
