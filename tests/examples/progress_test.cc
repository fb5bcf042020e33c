#include "examples/progress.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace examples {
namespace {

using ::testing::ContainsRegex;
using ::testing::IsEmpty;

TEST(ProgressTest, BytesAreReadable) {
  EXPECT_EQ(ReadableBytes(0), "0 B");
  EXPECT_EQ(ReadableBytes(1023), "1023 B");
  EXPECT_EQ(ReadableBytes(1024), "1.0 KiB");
  EXPECT_EQ(ReadableBytes(400u << 20), "400.0 MiB");
  EXPECT_EQ(ReadableBytes(uint64_t{3} << 41), "6.0 TiB");
}

TEST(ProgressTest, TheLineSaysHowFarItHasCome) {
  Progress progress(false);
  progress.Start("reading x", 400 << 20);
  progress.Done(100 << 20);
  EXPECT_THAT(progress.Line(), ContainsRegex("^reading x: 100.0 MiB of 400.0 MiB, 25 %, [0-9]+\\.[0-9] s"));
}

TEST(ProgressTest, WithoutATotalThereIsNoPercentage) {
  Progress progress(false);
  progress.Start("receiving x");
  EXPECT_THAT(progress.Line(), ContainsRegex("^receiving x, [0-9]+\\.[0-9] s"));
}

TEST(ProgressTest, NothingIsShownOfWhatWasShort) {
  testing::internal::CaptureStderr();
  {
    Progress progress(true);
    progress.Start("reading x", 10);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

TEST(ProgressTest, NothingIsShownWhenStderrIsNoTerminal) {
  testing::internal::CaptureStderr();  // To a file.
  {
    Progress progress;
    progress.Start("reading x", 10);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), IsEmpty());
}

}  // namespace
}  // namespace examples
