#ifndef HAWSER_BASE_ENDIAN_H_
#define HAWSER_BASE_ENDIAN_H_

#include <endian.h>
#include <string.h>

#include <cstdint>

// Little-endian integers at any alignment: what crosses the wire.
namespace hawser {

inline uint16_t LoadLittle16(const uint8_t* in) {
  uint16_t value;
  memcpy(&value, in, sizeof(value));
  return le16toh(value);
}
inline uint32_t LoadLittle32(const uint8_t* in) {
  uint32_t value;
  memcpy(&value, in, sizeof(value));
  return le32toh(value);
}
inline uint64_t LoadLittle64(const uint8_t* in) {
  uint64_t value;
  memcpy(&value, in, sizeof(value));
  return le64toh(value);
}
inline void StoreLittle16(uint8_t* out, uint16_t value) {
  value = htole16(value);
  memcpy(out, &value, sizeof(value));
}
inline void StoreLittle32(uint8_t* out, uint32_t value) {
  value = htole32(value);
  memcpy(out, &value, sizeof(value));
}
inline void StoreLittle64(uint8_t* out, uint64_t value) {
  value = htole64(value);
  memcpy(out, &value, sizeof(value));
}

}  // namespace hawser

#endif  // HAWSER_BASE_ENDIAN_H_
