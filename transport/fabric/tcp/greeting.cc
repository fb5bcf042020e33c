#include "hawser/transport/fabric/tcp/greeting.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hawser::fabric {

std::string EncodeGreeting(GreetingKind kind, uint32_t read_depth, absl::string_view private_data,
                           uint8_t flags) {
  std::string bytes(kGreetingMagic);
  bytes.push_back(static_cast<char>(kGreetingVersion & 0xff));
  bytes.push_back(static_cast<char>(kGreetingVersion >> 8));
  bytes.push_back(static_cast<char>(kind));
  bytes.push_back(static_cast<char>(private_data.size()));
  for (int shift = 0; shift < 24; shift += 8) bytes.push_back(static_cast<char>(read_depth >> shift));
  bytes.push_back(static_cast<char>(flags));
  bytes.append(private_data.data(), private_data.size());
  return bytes;
}

absl::string_view GreetingReader::private_data() const { return bytes().substr(kGreetingHeaderBytes); }

size_t GreetingReader::Wanted() const {
  return size_ < kGreetingHeaderBytes ? kGreetingHeaderBytes
                                      : kGreetingHeaderBytes + greeting_.private_data_bytes;
}

GreetingReader::Result GreetingReader::Read(Stream& stream) {
  while (true) {
    const size_t missing = Wanted() - size_;
    const iovec segment = {buffer_.data() + size_, missing};
    const ssize_t n = stream.Receive(&segment, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Result::kIncomplete;
    if (n <= 0) {
      error_ = n < 0 ? errno : 0;
      return Result::kClosed;
    }
    const bool header_was_missing = size_ < kGreetingHeaderBytes;
    size_ += n;
    if (header_was_missing) {
      if (const Result result = Check(); result != Result::kComplete) return result;
    }
    if (size_ == Wanted()) return Result::kComplete;
  }
}

// kComplete: the header is complete and valid. kIncomplete: the part that has arrived is valid.
GreetingReader::Result GreetingReader::Check() {
  const size_t known = std::min(size_, kGreetingMagicBytes);
  if (std::memcmp(buffer_.data(), kGreetingMagic.data(), known) != 0) return Result::kNotHawser;
  if (size_ < kGreetingHeaderBytes) return Result::kIncomplete;
  greeting_.version = static_cast<uint16_t>(buffer_[8] | buffer_[9] << 8);
  greeting_.kind = static_cast<GreetingKind>(buffer_[10]);
  greeting_.private_data_bytes = buffer_[11];
  greeting_.read_depth = 0;
  for (int i = 2; i >= 0; --i) greeting_.read_depth = greeting_.read_depth << 8 | buffer_[12 + i];
  greeting_.flags = buffer_[15];
  const bool kind_known = greeting_.kind >= GreetingKind::kConnect && greeting_.kind <= GreetingKind::kReject;
  if (greeting_.version != kGreetingVersion || !kind_known ||
      greeting_.private_data_bytes > private_data_max_) {
    return Result::kMalformed;
  }
  return Result::kComplete;
}

}  // namespace hawser::fabric
