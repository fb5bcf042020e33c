#include "hawser/base/version.h"

#include <capnp/common.h>
#include <dlfcn.h>
#include <link.h>

#include <climits>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hawser/base/json_writer.h"
#include "hawser/tls/library_version.h"
#include "hawser/tools/hawser/commands.h"
#include "hawser/transport/wire/handshake.h"

namespace hawser::tool {
namespace {

struct Part {
  const char* name;
  std::string version;  // Empty: it is not there.
};

std::string AbseilVersion() {
#ifdef ABSL_LTS_RELEASE_VERSION
  return absl::StrCat(ABSL_LTS_RELEASE_VERSION, ".", ABSL_LTS_RELEASE_PATCH_LEVEL);
#else
  return "of no release";
#endif
}

// The file that `name` leads to, without its folder: the libraries of rdma-core say their version nowhere
// else. Empty: none can be loaded.
std::string FileOfLibrary(const char* name) {
  void* const library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  link_map* map = nullptr;
  std::string file = name;
  char path[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && realpath(map->l_name, path) != nullptr) file = path;
  dlclose(library);
  return file.substr(file.rfind('/') + 1);
}

std::vector<Part> Parts() {
  return {
      {"hawser", kVersion},
      {"protocol", absl::StrCat(transport::kProtocolVersion)},
      {"capnp", absl::StrCat(CAPNP_VERSION_MAJOR, ".", CAPNP_VERSION_MINOR, ".", CAPNP_VERSION_MICRO)},
      {"abseil", AbseilVersion()},
      {"openssl", tls::OpenSslVersion()},
      {"libibverbs", FileOfLibrary("libibverbs.so.1")},
      {"librdmacm", FileOfLibrary("librdmacm.so.1")},
  };
}

class Version : public Command {
 public:
  const CommandHelp& help() const override {
    static constexpr CommandHelp kHelp = {
        "version", "", "says which hawser this is, and with which libraries it runs",
        "Prints the version of hawser, the version of the protocol that it speaks on the wire (a server of "
        "another "
        "one refuses it), Cap'n Proto and abseil as they were when it was built, and OpenSSL, libibverbs and "
        "librdmacm as they are on this machine. The last two are named by their files; \"none\": there is no "
        "such library, so no rdma://. `hawser --version` is the same.\n"
        "\n"
        "With --json: one object, all strings; null: there is none.",
        "hawser version\nhawser version --json"};
    return kHelp;
  }
  Needs needs() const override { return Needs::kNothing; }
  void AddFlags(Flags& flags) override { flags.Switch("json", "prints JSON instead of text", &json_); }

  absl::StatusOr<int> Run(const Session&) override {
    const std::vector<Part> parts = Parts();
    if (json_) {
      JsonWriter json;
      json.BeginObject();
      for (const Part& part : parts) {
        json.Name(part.name);
        part.version.empty() ? json.Null() : json.String(part.version);
      }
      json.EndObject();
      std::cout << std::move(json).Take() << '\n';
      return 0;
    }
    for (const Part& part : parts) {
      const absl::string_view name = part.name;
      std::cout << name << std::string(12 - name.size(), ' ')
                << (part.version.empty() ? "none" : part.version) << '\n';
    }
    return 0;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> NewVersion() { return std::make_unique<Version>(); }

}  // namespace hawser::tool
