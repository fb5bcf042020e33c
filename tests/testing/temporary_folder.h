#ifndef HAWSER_TESTS_TESTING_TEMPORARY_FOLDER_H_
#define HAWSER_TESTS_TESTING_TEMPORARY_FOLDER_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "gtest/gtest.h"

namespace hawser {

// A folder of a test's own. It is empty at first, and the destructor removes it.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(testing::TempDir() + "/folder.XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) abort();
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace hawser

#endif  // HAWSER_TESTS_TESTING_TEMPORARY_FOLDER_H_
