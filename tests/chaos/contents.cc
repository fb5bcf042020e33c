#include "hawser/tests/chaos/contents.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hawser::chaos {
namespace {

constexpr uint64_t kMagic = 0x68617773'63686173;

// FNV-1a: the same in every process, because processes compare their contents.
uint64_t Hash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

// splitmix64.
uint64_t Next(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

struct Header {
  uint64_t magic, key, sequence, size;
};
static_assert(sizeof(Header) == kContentsBytesMin);

}  // namespace

void FillContents(absl::string_view key, uint64_t sequence, uint8_t* bytes, size_t size_bytes) {
  const Header header = {kMagic, Hash(key), sequence, size_bytes};
  std::memcpy(bytes, &header, sizeof(header));
  uint64_t state = header.key ^ (sequence << 20) ^ size_bytes;
  for (size_t at = sizeof(header); at < size_bytes; at += sizeof(uint64_t)) {
    const uint64_t word = Next(&state);
    std::memcpy(bytes + at, &word, std::min(sizeof(word), size_bytes - at));
  }
}

uint64_t CheckContents(absl::string_view key, const uint8_t* bytes, size_t size_bytes, std::string* why) {
  Header header = {};
  if (size_bytes < sizeof(header)) {
    *why = absl::StrCat("a value of ", size_bytes, " bytes, which nobody has put");
    return 0;
  }
  std::memcpy(&header, bytes, sizeof(header));
  if (header.magic != kMagic || header.sequence == 0) {
    *why = "bytes that nobody has put";
  } else if (header.key != Hash(key)) {
    *why = "the value of another key";
  } else if (header.size != size_bytes) {
    *why = absl::StrCat("a value of ", header.size, " bytes has come as ", size_bytes);
  } else {
    std::vector<uint8_t> wanted(size_bytes);
    FillContents(key, header.sequence, wanted.data(), size_bytes);
    if (std::memcmp(bytes, wanted.data(), size_bytes) == 0) return header.sequence;
    size_t at = 0;
    while (bytes[at] == wanted[at]) ++at;
    *why = absl::StrCat("a torn value: put ", header.sequence, " of ", size_bytes, " bytes up to byte ", at);
  }
  return 0;
}

}  // namespace hawser::chaos
