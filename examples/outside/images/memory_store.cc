#include "images/memory_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "images/bitmap.h"

namespace images {
namespace {

constexpr uint32_t kPageMax = 1000;  // Names of 255 bytes: a page of 250 KiB.

absl::string_view View(capnp::Text::Reader text) { return {text.begin(), text.size()}; }

absl::Status CheckName(absl::string_view name) {
  if (!name.empty() && name.size() <= NAME_BYTES_MAX) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a name of ", name.size(), " bytes; a name has 1 to ", NAME_BYTES_MAX));
}

absl::Status NoSuchImage(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat("there is no image \"", name, "\""));
}

}  // namespace

// KeepBytes() keeps the pixels and little more, whatever the client sends beside them. The store counts what
// it keeps.
MemoryStore::Image MemoryStore::Keep(hawser::ServerContext& context, ImageStore::PutParams::Reader request) {
  const Bitmap::Reader bitmap = request.getImage();
  hawser::KeptBytes kept = context.KeepBytes(bitmap.getPixels());
  return {.width = bitmap.getWidth(),
          .height = bitmap.getHeight(),
          .pixels = kept.bytes,
          .owner = std::move(kept.owner),
          .held_bytes = kept.memory_bytes + sizeof(Image) + request.getName().size()};
}

absl::Status MemoryStore::Put(hawser::ServerContext& context, ImageStore::PutParams::Reader request,
                              ImageStore::PutResults::Builder reply) {
  const absl::string_view name = View(request.getName());
  if (absl::Status status = CheckName(name); !status.ok()) return status;
  if (absl::Status status = CheckBitmap(request.getImage()); !status.ok()) return status;
  Image image = Keep(context, request);

  absl::MutexLock lock(&mutex_);
  const auto replaced = images_.find(name);
  const uint64_t others_bytes = held_bytes_ - (replaced == images_.end() ? 0 : replaced->second.held_bytes);
  if (others_bytes + image.held_bytes > memory_bytes_max_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the image takes ", image.held_bytes, " bytes; the store has ", memory_bytes_max_,
                     ", and other images hold ", others_bytes, " of them; remove some"));
  }
  held_bytes_ = others_bytes + image.held_bytes;
  image.version = ++version_;
  images_.insert_or_assign(std::string(name), std::move(image));
  watchers_->Changed(name, version_);
  reply.setVersion(version_);
  return absl::OkStatus();
}

absl::Status MemoryStore::Get(hawser::ServerContext& context, ImageStore::GetParams::Reader request,
                              ImageStore::GetResults::Builder reply) {
  const absl::string_view name = View(request.getName());
  Image image;  // Shares the ownership of its memory, so another call may replace the image meanwhile.
  {
    absl::MutexLock lock(&mutex_);
    const auto found = images_.find(name);
    if (found == images_.end()) return NoSuchImage(name);
    image = found->second;
  }
  reply.setVersion(image.version);
  Bitmap::Builder bitmap = reply.initImage();
  bitmap.setWidth(image.width);
  bitmap.setHeight(image.height);
  bitmap.adoptPixels(context.Attach(image.pixels, image.owner));
  return absl::OkStatus();
}

absl::Status MemoryStore::List(hawser::ServerContext&, ImageStore::ListParams::Reader request,
                               ImageStore::ListResults::Builder reply) {
  const uint32_t limit = request.getLimit() == 0 ? kPageMax : std::min(request.getLimit(), kPageMax);
  std::vector<std::string> page;
  {
    absl::MutexLock lock(&mutex_);
    auto next = images_.upper_bound(View(request.getAfter()));
    for (; next != images_.end() && page.size() < limit; ++next) page.push_back(next->first);
    reply.setMore(next != images_.end());
  }
  auto names = reply.initNames(static_cast<uint32_t>(page.size()));
  for (uint32_t i = 0; i < names.size(); ++i) names.set(i, page[i]);
  return absl::OkStatus();
}

absl::Status MemoryStore::Remove(hawser::ServerContext&, ImageStore::RemoveParams::Reader request,
                                 ImageStore::RemoveResults::Builder reply) {
  const absl::string_view name = View(request.getName());
  absl::MutexLock lock(&mutex_);
  const auto found = images_.find(name);
  if (found == images_.end()) return NoSuchImage(name);
  held_bytes_ -= found->second.held_bytes;
  images_.erase(found);
  watchers_->Changed(name, ++version_);
  reply.setVersion(version_);
  return absl::OkStatus();
}

absl::Status MemoryStore::Watch(hawser::ServerContext& context, ImageStore::WatchParams::Reader,
                                ImageStore::WatchResults::Builder reply) {
  std::shared_ptr<hawser::Channel> client = context.peer();
  if (client == nullptr) {
    return absl::FailedPreconditionError(
        "there is no ImageWatcher to push to: offer one in ChannelOptions::services");
  }
  absl::MutexLock lock(&mutex_);
  reply.setVersion(version_);
  return watchers_->Add(std::move(client));
}

}  // namespace images
