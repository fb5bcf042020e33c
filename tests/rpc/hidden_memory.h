#ifndef HAWSER_TESTS_RPC_HIDDEN_MEMORY_H_
#define HAWSER_TESTS_RPC_HIDDEN_MEMORY_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "hawser/rpc/registered_memory.h"

namespace hawser {

// Memory of a "GPU": a file, of which a device in memory has a mapping. The mapping of this process faults.
class HiddenMemory {
 public:
  explicit HiddenMemory(size_t size_bytes)
      : size_bytes_(size_bytes), fd_(memfd_create("hidden", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_bytes)), 0);
    mapped_ = mmap(nullptr, size_bytes, PROT_NONE, MAP_SHARED, fd_, 0);
    EXPECT_NE(mapped_, MAP_FAILED);
  }
  ~HiddenMemory() {
    munmap(mapped_, size_bytes_);
    close(fd_);
  }
  HiddenMemory(const HiddenMemory&) = delete;

  MemoryRange range() const {
    return {.address = data(),
            .length_bytes = size_bytes_,
            .kind = MemoryKind::kDmabuf,
            .dmabuf = {.fd = fd_},
            .cpu_visible = false};
  }
  uint8_t* data() const { return static_cast<uint8_t*>(mapped_); }
  // What the device has written there.
  std::string Contents(size_t offset, size_t length) const {
    std::string bytes(length, '\0');
    EXPECT_EQ(pread(fd_, bytes.data(), length, static_cast<off_t>(offset)), static_cast<ssize_t>(length));
    return bytes;
  }
  void Fill(size_t offset, const std::string& bytes) const {
    EXPECT_EQ(pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(bytes.size()));
  }

 private:
  const size_t size_bytes_;
  const int fd_;
  void* mapped_ = nullptr;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_RPC_HIDDEN_MEMORY_H_
