// Whether a schema can replace its released version: reads two CodeGeneratorRequests, says what peers of the
// two versions would misunderstand. capnp_compatible_test (compatible_test.bzl) runs it.
//
//   capnp compile -o- released/kv.capnp >released.request
//   capnp compile -o- kv.capnp >next.request
//   capnp-compatible released.request next.request
//
// Exit code: 0 it can; 1 it cannot, with the reasons on standard output; 2 there is nothing to compare, with
// the reason on standard error.

#include <capnp/serialize.h>
#include <fcntl.h>
#include <kj/exception.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "hawser/codegen/compatibility.h"

namespace hawser::codegen {
namespace {

constexpr int kCannotCompare = 2;

int Complain(const std::string& what) {
  std::fputs(absl::StrCat("capnp-compatible: ", what, "\n").c_str(), stderr);
  return kCannotCompare;
}

// A request, which is read in place while this lives.
class RequestFile {
 public:
  explicit RequestFile(const char* path) : path_(path), fd_(open(path, O_RDONLY | O_CLOEXEC)) {}
  ~RequestFile() {
    if (fd_ >= 0) close(fd_);
  }
  RequestFile(const RequestFile&) = delete;
  RequestFile& operator=(const RequestFile&) = delete;

  // Empty: it was read.
  std::string Read() {
    if (fd_ < 0) return absl::StrCat("cannot open ", path_, ": ", std::strerror(errno));
    struct stat status;
    if (fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0) {
      return absl::StrCat(path_, " is empty: did `capnp compile -o-`, which writes it, fail?");
    }
    const std::string expected = absl::StrCat(path_, " is not what `capnp compile -o- foo.capnp` writes");
    try {
      capnp::ReaderOptions no_limit;  // It comes from the schema compiler.
      no_limit.traversalLimitInWords = uint64_t{1} << 40;
      message_ = std::make_unique<capnp::StreamFdMessageReader>(fd_, no_limit);
      if (request().getRequestedFiles().size() == 0) return absl::StrCat(expected, ": it names no schema.");
    } catch (const kj::Exception& e) {
      return absl::StrCat(expected, ": ", e.getDescription().cStr());
    }
    return "";
  }

  CodeGeneratorRequest::Reader request() { return message_->getRoot<CodeGeneratorRequest>(); }

 private:
  const std::string path_;
  const int fd_;
  std::unique_ptr<capnp::StreamFdMessageReader> message_;
};

int Run(const char* released_path, const char* next_path) {
  RequestFile released(released_path), next(next_path);
  for (RequestFile* file : {&released, &next}) {
    if (std::string problem = file->Read(); !problem.empty()) return Complain(problem);
  }
  auto messages = Incompatibilities(released.request(), next.request());
  if (!messages.ok()) return Complain(std::string(messages.status().message()));
  for (const std::string& message : *messages) std::fputs(message.c_str(), stdout);
  return messages->empty() ? 0 : 1;
}

}  // namespace
}  // namespace hawser::codegen

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs(
        "usage: capnp-compatible <released> <next>\n"
        "Each is a file that `capnp compile -o- foo.capnp` wrote.\n",
        stderr);
    return hawser::codegen::kCannotCompare;
  }
  try {
    return hawser::codegen::Run(argv[1], argv[2]);
  } catch (const kj::Exception& e) {
    return hawser::codegen::Complain(
        absl::StrCat("cannot compare ", argv[1], " with ", argv[2], ": ", e.getDescription().cStr()));
  }
}
