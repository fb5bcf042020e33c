#include "hawser/transport/memory/registered_memory.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "hawser/transport/memory/retired_memory.h"

namespace hawser::transport {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;

// From now on the kernel takes pages of this range from the node, if it has free ones. Calls mbind(2) by
// number, because the C library has no wrapper.
void PreferNumaNode(void* address, size_t size_bytes, int node) {
  constexpr int kPreferred = 1;  // MPOL_PREFERRED
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  unsigned long nodes[16] = {};
  if (node < 0 || static_cast<size_t>(node) >= kBits * std::size(nodes)) return;
  nodes[static_cast<size_t>(node) / kBits] = 1ul << static_cast<size_t>(node) % kBits;
  // The kernel reads one bit less than the given number. If it refuses, as in some containers, any node will
  // do.
  syscall(SYS_mbind, address, size_bytes, kPreferred, nodes, kBits * std::size(nodes) + 1, 0);
}

// Null: an error; errno is set.
uint8_t* MapAligned(size_t size_bytes) {
  const size_t reserve = size_bytes + kHugePageBytes;
  void* mapped =
      mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = (start + kHugePageBytes - 1) & ~(kHugePageBytes - 1);
  if (aligned != start) munmap(mapped, aligned - start);
  // Whole pages, which have up to 64 KiB on arm64: a buffer need not end with one.
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t end = (aligned + size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  if (end < start + reserve) munmap(reinterpret_cast<void*>(end), start + reserve - end);
  // This is only advice. If the kernel ignores it, the pages are small.
  madvise(reinterpret_cast<void*>(aligned), size_bytes, MADV_HUGEPAGE);
  return reinterpret_cast<uint8_t*>(aligned);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegisteredMemory::Map(fabric::Fabric& fabric,
                                                                        size_t size_bytes) {
  uint8_t* const address = MapAligned(size_bytes);
  if (address == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("mmap of ", size_bytes, " bytes for the memory pool failed: ", strerror(errno)));
  }
  PreferNumaNode(address, size_bytes, fabric.numa_node());
  std::unique_ptr<RegisteredMemory> memory(new RegisteredMemory(address, size_bytes));
  absl::StatusOr<std::unique_ptr<fabric::MemoryRegion>> registered = fabric.Register(address, size_bytes);
  if (!registered.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "registering ", size_bytes, " bytes for the memory pool failed: ", registered.status().message()));
  }
  memory->memory_region_ = *std::move(registered);
  return memory;
}

RegisteredMemory::~RegisteredMemory() {
  memory_region_.reset();  // Until here the device may use the pages.
  ReviveMemory(address_, size_bytes_);
  munmap(address_, size_bytes_);
}

}  // namespace hawser::transport
