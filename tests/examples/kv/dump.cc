// Gets every key of a kv_server and writes it to a file of that name below a folder: the inverse of `kv
// load`.

#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/arguments.h"
#include "examples/kv/client/output_file.h"
#include "examples/kv/client/pages.h"
#include "examples/kv/kv.rpc.h"
#include "hawser/rpc/channel.h"

namespace {

absl::Status Dump(const std::string& target, const std::string& out) {
  absl::StatusOr<std::shared_ptr<hawser::Channel>> channel = hawser::Channel::Connect(target);
  if (!channel.ok()) return channel.status();
  const kv::KeyValueStub kv(*channel);
  std::vector<std::string> keys;
  absl::Status status =
      kv::ForEachEntry(kv, "", [&](kv::KeyValue::Entry::Reader entry) { keys.push_back(entry.getKey()); });
  if (!status.ok()) return status;
  for (const std::string& key : keys) {
    auto call = kv.Get();
    call.request().setKey(key);
    auto reply = call.Send().Wait();
    if (!reply.ok()) return reply.status();
    const std::filesystem::path path = std::filesystem::path(out) / key;
    std::filesystem::create_directories(path.parent_path());
    const capnp::Data::Reader value = (*reply)->getValue();
    status = kv::WriteFile(path, value.begin(), value.size());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  std::string target, out;
  examples::FlagSet flags;
  flags.Text("target", &target).Text("out", &out);
  absl::Status status = flags.Apply(examples::CommandLine::Split({argv + 1, argv + argc}));
  if (status.ok()) status = Dump(target, out);
  if (status.ok()) return 0;
  std::cerr << "dump: " << status << std::endl;
  return 1;
}
