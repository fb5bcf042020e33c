// The plugin of `capnp compile`: reads a CodeGeneratorRequest from standard input, writes foo.rpc.h and
// foo.rpc.c++ for each foo.capnp. Refuses all of them, with exit code 1, if one asks for something that
// Hawser cannot do.
//
//   capnp compile -o c++ -o .../capnpc-hawser foo.capnp
//
// With HAWSER_UNSUPPORTED=leave_out in the environment, because a plugin gets no arguments, it makes the
// rest: interfaces that Hawser cannot serve are left out, with a note each.

#include <capnp/serialize.h>
#include <kj/exception.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "hawser/codegen/header_text.h"
#include "hawser/codegen/model.h"
#include "hawser/codegen/nodes.h"
#include "hawser/codegen/source_text.h"

namespace hawser::codegen {
namespace {

bool Write(const std::string& path, const std::string& text) {
  std::error_code ignored;  // The open that follows reports it.
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) std::perror(("capnpc-hawser: cannot write " + path).c_str());
  return file.good();
}

int Run() {
  capnp::ReaderOptions no_limit;  // The request comes from the compiler that called us.
  no_limit.traversalLimitInWords = uint64_t{1} << 40;
  capnp::StreamFdMessageReader message(STDIN_FILENO, no_limit);
  auto request = message.getRoot<CodeGeneratorRequest>();
  Nodes nodes(request);

  const char* unsupported = std::getenv("HAWSER_UNSUPPORTED");
  const std::string choice = unsupported == nullptr || *unsupported == '\0' ? "refuse" : unsupported;
  if (choice != "refuse" && choice != "leave_out") {
    std::fprintf(stderr, "capnpc-hawser: HAWSER_UNSUPPORTED is \"%s\"; it can be refuse or leave_out\n",
                 unsupported);
    return 1;
  }

  std::vector<FileModel> files;
  std::vector<std::string> refusals;
  for (auto file : request.getRequestedFiles()) {
    files.push_back(BuildModel(nodes, file,
                               choice == "refuse" ? Unsupported::kRefuse : Unsupported::kLeaveOut, refusals));
  }
  for (const std::string& refusal : refusals) std::fputs(refusal.c_str(), stderr);
  if (!refusals.empty()) return 1;

  for (const FileModel& file : files) {
    for (const LeftOutModel& left_out : file.left_out) {
      std::fprintf(stderr, "%s: note: %s is left out: %s\n", left_out.place.c_str(), left_out.name.c_str(),
                   left_out.reason.c_str());
    }
    if (!Write(file.output_base + ".rpc.h", HeaderText(file))) return 1;
    if (!Write(file.output_base + ".rpc.c++", SourceText(file))) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace hawser::codegen

int main(int argc, char**) {
  if (argc > 1 || isatty(STDIN_FILENO)) {
    std::fputs(
        "capnpc-hawser is called by the schema compiler: capnp compile -o c++ -o ./capnpc-hawser foo.capnp\n",
        stderr);
    return 2;
  }
  try {
    return hawser::codegen::Run();
  } catch (const kj::Exception& e) {
    std::fprintf(stderr, "capnpc-hawser: cannot read the request of the schema compiler: %s\n",
                 e.getDescription().cStr());
    return 1;
  }
}
