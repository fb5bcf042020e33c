#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/kv/client/command.h"
#include "examples/kv/client/input_file.h"
#include "examples/kv/kv.rpc.h"
#include "examples/progress.h"

namespace kv {
namespace {

// The most bytes of Cap'n Proto's Data, whose length has 29 bits.
constexpr uint64_t kDataBytesMax = (uint64_t{1} << 29) - 1;

class Put : public Command {
 public:
  std::string usage() const override { return "put KEY VALUE, or put KEY --file=PATH"; }

  void AddFlags(examples::FlagSet& flags) override { flags.Text("file", &path_); }

  absl::Status Take(const std::vector<std::string>& words) override {
    if (!path_.empty()) return TakeWords(words, {"KEY"}, {&key_});
    return TakeWords(words, {"KEY", "VALUE or --file=PATH"}, {&key_, &value_});
  }

  absl::Status Run(const Target& target) override {
    absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = target.Connect();
    if (!channel.ok()) return channel.status();
    KeyValueStub kv(*channel);
    examples::Progress progress;
    auto call = kv.Put();
    call.request().setKey(key_);
    if (path_.empty()) {
      call.request().setValue({reinterpret_cast<const uint8_t*>(value_.data()), value_.size()});
    } else {
      absl::StatusOr<hawser::Buffer> value = ReadFile(**channel, progress);
      if (!value.ok()) return value.status();
      progress.Start(absl::StrCat("sending ", examples::ReadableBytes(value->size_bytes())));
      if (value->size_bytes() > 0) call.request().adoptValue(call.Attach(*std::move(value)));
    }
    auto reply = call.Send().Wait();
    progress.End();
    if (!reply.ok()) return reply.status();
    std::cout << "revision " << (*reply)->getRevision() << std::endl;
    return absl::OkStatus();
  }

 private:
  // Reads the file straight into registered memory, from which it is sent.
  absl::StatusOr<hawser::Buffer> ReadFile(hawser::Channel& channel, examples::Progress& progress) const {
    absl::StatusOr<InputFile> file = InputFile::Open(path_);
    if (!file.ok()) return file.status();
    if (file->size_bytes() > kDataBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, " has ", file->size_bytes(), " bytes; a value may have ", kDataBytesMax));
    }
    if (file->size_bytes() == 0) return hawser::Buffer();
    absl::StatusOr<hawser::Buffer> buffer = channel.AllocateBuffer(file->size_bytes());
    if (!buffer.ok()) return buffer.status();
    progress.Start(absl::StrCat("reading ", path_), file->size_bytes());
    absl::Status status = file->ReadAll(buffer->data(), [&](uint64_t bytes) { progress.Done(bytes); });
    if (!status.ok()) return status;
    return buffer;
  }

  std::string key_;
  std::string value_;
  std::string path_;
};

}  // namespace

std::unique_ptr<Command> NewPut() { return std::make_unique<Put>(); }

}  // namespace kv
