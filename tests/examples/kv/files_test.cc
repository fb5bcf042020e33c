#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "examples/kv/client/input_file.h"
#include "examples/kv/client/output_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"

namespace kv {
namespace {

using ::hawser::HasCode;
using ::hawser::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FilesTest : public testing::Test {
 protected:
  FilesTest() : dir_(std::filesystem::path(testing::TempDir()) / std::to_string(getpid())) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directory(dir_);
  }
  ~FilesTest() override { std::filesystem::remove_all(dir_); }

  std::string Path(const std::string& name) const { return dir_ / name; }
  void Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name)) << content;
  }
  std::string Read(const std::string& name) const {
    std::ostringstream content;
    content << std::ifstream(Path(name)).rdbuf();
    return content.str();
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(dir_))
      names.push_back(entry.path().filename());
    return names;
  }
  static absl::Status WriteText(const std::string& path, const std::string& text) {
    return WriteFile(path, reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }

  const std::filesystem::path dir_;
};

TEST_F(FilesTest, AFileIsReadWhole) {
  const std::string content(10 << 20, 'x');
  Write("in", content);
  absl::StatusOr<InputFile> file = InputFile::Open(Path("in"));
  ASSERT_THAT(file, IsOk());
  std::string read(file->size_bytes(), ' ');
  uint64_t progress = 0;
  ASSERT_THAT(file->ReadAll(reinterpret_cast<uint8_t*>(read.data()), [&](uint64_t done) { progress = done; }),
              IsOk());
  EXPECT_TRUE(read == content);
  EXPECT_EQ(progress, content.size());
}

TEST_F(FilesTest, AFileThatChangesWhileItIsReadIsAnError) {
  Write("in", "12345");
  std::vector<uint8_t> data(100);
  absl::StatusOr<InputFile> file = InputFile::Open(Path("in"));
  Write("in", "123");
  EXPECT_THAT(std::string(file->ReadAll(data.data()).message()), HasSubstr("has become shorter"));
}

TEST_F(FilesTest, AFileThatGrowsWhileItIsReadIsAnError) {
  Write("in", "12345");
  std::vector<uint8_t> data(100);
  absl::StatusOr<InputFile> file = InputFile::Open(Path("in"));
  Write("in", "1234567");
  EXPECT_THAT(std::string(file->ReadAll(data.data()).message()), HasSubstr("has become longer"));
}

TEST_F(FilesTest, WhatIsNoFileIsNamed) {
  EXPECT_THAT(std::string(InputFile::Open(Path("none")).status().message()), HasSubstr(Path("none")));
  EXPECT_THAT(InputFile::Open(Path("none")).status(), HasCode(absl::StatusCode::kNotFound));
  EXPECT_THAT(std::string(InputFile::Open(dir_).status().message()), HasSubstr("no regular file"));
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(std::string(InputFile::Open(Path("pipe")).status().message()), HasSubstr("no regular file"));
}

TEST_F(FilesTest, WritingReplacesAFileAndLeavesNothingBeside) {
  Write("out", "something that was longer");
  ASSERT_THAT(WriteText(Path("out"), "new"), IsOk());
  EXPECT_EQ(Read("out"), "new");
  EXPECT_THAT(Names(), ElementsAre("out"));
}

TEST_F(FilesTest, AFileThatDoesNotFitLeavesTheOldOneAndNothingElse) {
  Write("out", "old");
  // As on a full disk, but without one: no file may become longer than 1 MiB.
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 1 << 20;
  setrlimit(RLIMIT_FSIZE, &small);
  absl::Status status = WriteText(Path("out"), std::string(2 << 20, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write " + Path("out")));
  EXPECT_EQ(Read("out"), "old");
  EXPECT_THAT(Names(), ElementsAre("out"));
}

TEST_F(FilesTest, AFullDeviceSaysSo) {
  absl::Status status = WriteText("/dev/full", "x");
  EXPECT_THAT(std::string(status.message()), HasSubstr("No space left on device"));
}

TEST_F(FilesTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(std::string(WriteText(Path("none/out"), "x").message()), HasSubstr(Path("none/out")));
}

TEST_F(FilesTest, AFolderIsNotReplaced) {
  ASSERT_TRUE(std::filesystem::create_directory(Path("out")));
  EXPECT_THAT(WriteText(Path("out"), "x"), Not(IsOk()));
  EXPECT_THAT(Names(), ElementsAre("out"));
}

}  // namespace
}  // namespace kv
