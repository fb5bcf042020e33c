#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/input_file.h"
#include "examples/kv/kv.rpc.h"
#include "examples/progress.h"
#include "examples/window.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBytesInFlight = 64 << 20;
// From this size on a value has a buffer of its own, which need not be zeroed. A smaller one shares the
// request's.
constexpr uint64_t kOwnBufferMin = 2048;

// The puts in flight, and the results of those that have ended.
class Loading {
 public:
  Loading(KeyValueStub kv, uint64_t in_flight) : kv_(std::move(kv)), window_(in_flight, kBytesInFlight) {}

  // Waits for room, and sends the file without waiting for the answer. Not OK: the file cannot be read.
  absl::Status Put(hawser::Channel& channel, const std::string& key, const fs::path& path) {
    absl::StatusOr<InputFile> file = InputFile::Open(path);
    if (!file.ok()) return file.status();
    const uint64_t size_bytes = file->size_bytes();
    window_.Enter(size_bytes);
    absl::Status status = Send(channel, key, *file);
    if (!status.ok()) window_.Leave(size_bytes);
    return status;
  }

  void WaitForAll() { window_.WaitUntilEmpty(); }

  struct Sum {
    uint64_t files = 0;
    uint64_t bytes = 0;
    absl::Status status;  // The first failure.
  };
  Sum sum() const {
    absl::MutexLock lock(&mutex_);
    return sum_;
  }

 private:
  absl::Status Send(hawser::Channel& channel, const std::string& key, InputFile& file) {
    const uint64_t size_bytes = file.size_bytes();
    auto call = kv_.Put();
    call.request().setKey(key);
    if (size_bytes < kOwnBufferMin) {
      absl::Status status = file.ReadAll(call.request().initValue(size_bytes).begin());
      if (!status.ok()) return status;
    } else {
      absl::StatusOr<hawser::Buffer> buffer = channel.AllocateBuffer(size_bytes);
      if (!buffer.ok()) return buffer.status();
      if (absl::Status status = file.ReadAll(buffer->data()); !status.ok()) return status;
      call.request().adoptValue(call.Attach(*std::move(buffer)));
    }
    call.Send().Then([this, size_bytes](const absl::StatusOr<hawser::Reply<KeyValue::PutResults>>& reply) {
      Ended(size_bytes, reply.status());
    });
    return absl::OkStatus();
  }

  void Ended(uint64_t size_bytes, const absl::Status& status) {
    {
      absl::MutexLock lock(&mutex_);
      sum_.status.Update(status);
      if (status.ok()) {
        ++sum_.files;
        sum_.bytes += size_bytes;
      }
    }
    window_.Leave(size_bytes);  // The last step, because after it no thread waits for this call.
  }

  KeyValueStub kv_;
  examples::Window window_;
  mutable absl::Mutex mutex_;
  Sum sum_ ABSL_GUARDED_BY(mutex_);
};

class Load : public Command {
 public:
  std::string usage() const override { return "load DIR [--prefix=TEXT] [--in_flight=16]"; }

  void AddFlags(examples::FlagSet& flags) override {
    flags.Text("prefix", &prefix_).Number("in_flight", 1, 1024, &in_flight_);
  }

  absl::Status Take(const std::vector<std::string>& words) override {
    return TakeWords(words, {"DIR"}, {&dir_});
  }

  // Reports and skips a file that cannot be read. A failed call ends it.
  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::vector<Found>> files = Find();
    if (!files.ok()) return files.status();
    uint64_t total_bytes = 0;
    for (const Found& file : *files) total_bytes += file.size_bytes;

    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    const absl::Time start = absl::Now();
    Loading loading(KeyValueStub(*channel), in_flight_);
    uint64_t unreadable = 0;
    {
      examples::Progress progress;
      progress.Start(absl::StrCat("loading ", dir_), total_bytes);
      for (const Found& file : *files) {
        const Loading::Sum sum = loading.sum();
        if (!sum.status.ok()) break;
        progress.Done(sum.bytes);
        const absl::Status status = loading.Put(**channel, absl::StrCat(prefix_, file.key), file.path);
        if (!status.ok()) {
          std::cerr << "kv load: " << status << std::endl;
          ++unreadable;
        }
      }
      loading.WaitForAll();
    }

    const Loading::Sum sum = loading.sum();
    absl::FPrintF(stdout, "loaded %d of %d files, %s, in %.2f s\n", sum.files, files->size(),
                  examples::ReadableBytes(sum.bytes), absl::ToDoubleSeconds(absl::Now() - start));
    if (!sum.status.ok()) return sum.status;
    if (unreadable > 0) return absl::UnknownError(absl::StrCat(unreadable, " files could not be read"));
    return absl::OkStatus();
  }

 private:
  struct Found {
    fs::path path;
    std::string key;  // The path below the folder.
    uint64_t size_bytes;
  };

  // Finds every regular file below the folder. Symbolic links to files count as files. It does not follow
  // links to folders, because they may form a circle.
  absl::StatusOr<std::vector<Found>> Find() const {
    std::vector<Found> files;
    std::error_code error;
    for (fs::recursive_directory_iterator it(dir_, error), end; !error && it != end; it.increment(error)) {
      std::error_code dangling;  // Set for a symbolic link without a target.
      if (!it->is_regular_file(dangling)) continue;
      files.push_back(
          {it->path(), it->path().lexically_relative(dir_).generic_string(), it->file_size(dangling)});
    }
    if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot list ", dir_));
    return files;
  }

  std::string dir_;
  std::string prefix_;
  uint64_t in_flight_ = 16;
};

}  // namespace

std::unique_ptr<Command> NewLoad() { return std::make_unique<Load>(); }

}  // namespace kv
