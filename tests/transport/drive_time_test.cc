// Where the time of the thread that drives a poller goes.

#include "hawser/transport/poller/drive_time.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace hawser::transport {
namespace {

using Part = DriveTime::Part;

TEST(DriveTimeTest, AnEstimateAheadOfTheClockCountsNoTimeTwice) {
  DriveTime time(100);
  time.Begin(Part::kBusy, 200);
  time.Begin(Part::kSlept, 350);  // The estimate.
  time.Begin(Part::kBusy, 340);   // The clock.
  time.Begin(Part::kSlept, 400);
  time.Begin(Part::kSpun, 450);
  EXPECT_EQ(time.Total(Part::kBusy), absl::Nanoseconds(150 + 50));
  EXPECT_EQ(time.Total(Part::kSlept), absl::Nanoseconds(100 + 50));
  EXPECT_EQ(time.Total(Part::kSpun), absl::ZeroDuration());
}

}  // namespace
}  // namespace hawser::transport
