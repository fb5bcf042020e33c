#ifndef IMAGES_MEMORY_STORE_H_
#define IMAGES_MEMORY_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "images/images.rpc.h"
#include "images/watchers.h"

namespace images {

// An ImageStore in memory. Pixels stay in the memory of their request, and replies are sent from there: a
// large image is never copied. The memory of an image moves round this ring:
//   the pool -> a request -> the store, and each reply in flight -> the last of these -> the pool
// Thread: any; nothing blocks, so it may run on the pollers.
class MemoryStore : public ImageStoreService {
 public:
  // `memory_bytes_max` limits all images, with the memory that is held around them.
  explicit MemoryStore(uint64_t memory_bytes_max) : memory_bytes_max_(memory_bytes_max) {}

  absl::Status Put(hawser::ServerContext& context, ImageStore::PutParams::Reader request,
                   ImageStore::PutResults::Builder reply) override;
  absl::Status Get(hawser::ServerContext& context, ImageStore::GetParams::Reader request,
                   ImageStore::GetResults::Builder reply) override;
  absl::Status List(hawser::ServerContext& context, ImageStore::ListParams::Reader request,
                    ImageStore::ListResults::Builder reply) override;
  absl::Status Remove(hawser::ServerContext& context, ImageStore::RemoveParams::Reader request,
                      ImageStore::RemoveResults::Builder reply) override;
  absl::Status Watch(hawser::ServerContext& context, ImageStore::WatchParams::Reader request,
                     ImageStore::WatchResults::Builder reply) override;

  size_t watchers() const { return watchers_->size(); }

 private:
  struct Image {
    uint32_t width = 0;
    uint32_t height = 0;
    capnp::Data::Reader pixels;
    std::shared_ptr<const void> owner;  // Owns the memory of the pixels.
    uint64_t held_bytes = 0;            // The memory of the owner and of this entry.
    uint64_t version = 0;
  };
  static Image Keep(hawser::ServerContext& context, ImageStore::PutParams::Reader request);

  const uint64_t memory_bytes_max_;
  const std::shared_ptr<Watchers> watchers_ = std::make_shared<Watchers>();
  // Held while the store notifies watchers_ of a change, so that they get changes in the order of versions.
  absl::Mutex mutex_;
  std::map<std::string, Image, std::less<>> images_ ABSL_GUARDED_BY(mutex_);
  uint64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace images

#endif  // IMAGES_MEMORY_STORE_H_
