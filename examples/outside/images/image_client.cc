// kUsage lists the commands. Files are PPM ("P6"), which most image viewers open.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "hawser/rpc/status.h"
#include "images/bitmap.h"
#include "images/images.rpc.h"

namespace images {
namespace {

constexpr char kUsage[] =
    "usage: image_client put STORE NAME FILE          e.g. put tcp://localhost:7480 sea sea.ppm\n"
    "       image_client list STORE\n"
    "       image_client watch STORE                  a line for each change: its version, a tab, the name\n"
    "       image_client get GATEWAY NAME FILE        e.g. get tcp://localhost:7481 sea copy.ppm\n"
    "       image_client thumbnail GATEWAY NAME WIDTH FILE";

std::string Printable(capnp::Text::Reader text) {
  return hawser::EscapePeerText({text.begin(), text.size()});
}

// Reads the pixels into registered memory, and sends them from there.
absl::Status Put(const std::shared_ptr<hawser::Channel>& channel, const std::string& name,
                 const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string format;
  uint64_t width = 0, height = 0, brightest = 0;
  file >> format >> width >> height >> brightest;
  file.get();
  if (!file || format != "P6" || brightest != 255 || width > kSideMax || height > kSideMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " is no file that can be read, or no PPM (P6, 255)"));
  }
  absl::StatusOr<hawser::Buffer> pixels = channel->AllocateBuffer(width * height * kBytesPerPixel);
  if (!pixels.ok()) return pixels.status();
  if (!file.read(reinterpret_cast<char*>(pixels->data()),
                 static_cast<std::streamsize>(pixels->size_bytes()))) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has fewer pixels than it says"));
  }

  auto call = ImageStoreStub(channel).Put();
  call.request().setName(name);
  Bitmap::Builder image = call.request().initImage();
  image.setWidth(static_cast<uint32_t>(width));
  image.setHeight(static_cast<uint32_t>(height));
  image.adoptPixels(call.Attach(*std::move(pixels)));
  auto reply = call.Send().Wait();
  if (!reply.ok()) return reply.status();
  std::cout << "version " << (*reply)->getVersion() << std::endl;
  return absl::OkStatus();
}

absl::Status Write(Bitmap::Reader image, const std::string& path) {
  const capnp::Data::Reader pixels = image.getPixels();
  std::ofstream file(path, std::ios::binary);
  file << "P6\n" << image.getWidth() << " " << image.getHeight() << "\n255\n";
  file.write(reinterpret_cast<const char*>(pixels.begin()), static_cast<std::streamsize>(pixels.size()));
  file.close();
  if (!file) return absl::UnknownError(absl::StrCat("cannot write ", path));
  std::cout << image.getWidth() << " by " << image.getHeight() << std::endl;
  return absl::OkStatus();
}

absl::Status Get(const std::shared_ptr<hawser::Channel>& channel, const std::string& name,
                 const std::string& path) {
  auto call = GatewayStub(channel).Image();
  call.request().setName(name);
  auto reply = call.Send().Wait();
  return reply.ok() ? Write((*reply)->getImage(), path) : reply.status();
}

absl::Status Thumbnail(const std::shared_ptr<hawser::Channel>& channel, const std::string& name,
                       uint32_t width, const std::string& path) {
  auto call = GatewayStub(channel).Thumbnail();
  call.request().setName(name);
  call.request().setWidth(width);
  auto reply = call.Send().Wait();
  return reply.ok() ? Write((*reply)->getImage(), path) : reply.status();
}

absl::Status List(const std::shared_ptr<hawser::Channel>& channel) {
  std::string after;
  for (bool more = true; more;) {
    auto call = ImageStoreStub(channel).List();
    call.request().setAfter(after);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    for (capnp::Text::Reader name : (*reply)->getNames()) {
      std::cout << Printable(name) << std::endl;
      after = std::string(name.begin(), name.size());
    }
    more = (*reply)->getMore();
  }
  return absl::OkStatus();
}

// Prints on the poller. In other programs a handler must not block the poller, but this program does nothing
// else. While its output is not read, it does not answer, and the store sends nothing more.
class PrintingWatcher : public ImageWatcherService {
 public:
  absl::Status Changed(hawser::ServerContext&, ImageWatcher::ChangedParams::Reader request,
                       ImageWatcher::ChangedResults::Builder) override {
    std::cout << request.getVersion() << "\t" << Printable(request.getName()) << std::endl;
    return absl::OkStatus();
  }
};

// Counts connections. The store removes a watcher when its connection ends, so the client watches again on
// each one.
class Connections {
 public:
  void OnStateChange(hawser::ChannelState state) {
    absl::MutexLock lock(&mutex_);
    if (state == hawser::ChannelState::kReady) ++made_;
  }
  // Blocks until there were more than `seen` connections, `at_most` so long, and returns their number.
  uint64_t WaitForMoreThan(uint64_t seen, absl::Duration at_most) {
    const auto more = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return made_ > seen; };
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&more), at_most);
    return made_;
  }

 private:
  absl::Mutex mutex_;
  uint64_t made_ ABSL_GUARDED_BY(mutex_) = 0;
};

// How soon a store that answers Unavailable is asked again.
constexpr absl::Duration kPause = absl::Seconds(1);

// Watches until a permanent failure, or until a signal ends the process.
absl::Status Watch(const std::string& uri) {
  PrintingWatcher watcher;  // Both outlive the channel.
  Connections connections;
  hawser::ChannelOptions options;
  options.services = {&watcher};
  options.on_state_change = [&](hawser::ChannelState state, const absl::Status&) {
    connections.OnStateChange(state);
  };
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel =
      hawser::Channel::Connect(uri, std::move(options));
  if (!channel.ok()) return channel.status();
  ImageStoreStub store(*channel);
  absl::Duration at_most = absl::InfiniteDuration();
  for (uint64_t seen = 0;;) {
    seen = connections.WaitForMoreThan(seen, at_most);
    auto reply = store.Watch().Send().Wait();
    at_most = absl::InfiniteDuration();
    if (reply.ok()) {
      std::cerr << "watching from version " << (*reply)->getVersion() << std::endl;
    } else if (absl::IsUnavailable(reply.status())) {
      at_most = kPause;  // Lost again, and the next one follows; or the store has answered so.
    } else {
      return reply.status();
    }
  }
}

absl::Status Run(const std::vector<std::string>& words) {
  const auto is = [&](const char* command, size_t count) {
    return words.size() == count && words[0] == command;
  };
  uint32_t width = 0;
  const bool put = is("put", 4), get = is("get", 4), list = is("list", 2), watch = is("watch", 2);
  const bool thumbnail = is("thumbnail", 5) && absl::SimpleAtoi(words[3], &width);
  if (watch) return Watch(words[1]);
  if (!put && !get && !list && !thumbnail) return absl::InvalidArgumentError(kUsage);
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(words[1]);
  if (!channel.ok()) return channel.status();
  if (put) return Put(*channel, words[2], words[3]);
  if (get) return Get(*channel, words[2], words[3]);
  if (list) return List(*channel);
  return Thumbnail(*channel, words[2], width, words[4]);
}

}  // namespace
}  // namespace images

int main(int argc, char** argv) {
  absl::Status status = images::Run({argv + 1, argv + argc});
  if (status.ok()) return 0;
  std::cerr << "image_client: " << status << std::endl;
  return 1;
}
