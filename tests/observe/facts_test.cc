// What is known of a fact, as people read it and as a metric.

#include "hawser/observe/facts.h"

#include <capnp/message.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "hawser/observe/prometheus.h"
#include "hawser/observe/tables.h"

namespace hawser::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Taken {
 public:
  wire::Snapshot::Builder snapshot() { return message_.getRoot<wire::Snapshot>(); }
  std::string Metrics() { return ToPrometheus(snapshot().asReader()); }

 private:
  capnp::MallocMessageBuilder message_;
};

TEST(FactsTest, APollerThatIsHeldSaysWhatItCountsAndNotWhatIsOnIt) {
  Taken taken;
  taken.snapshot().initServer();
  auto poller = taken.snapshot().initPollers(1)[0];
  poller.setName("tcp 0");
  poller.setTurns(7);
  poller.setReadsWaiting(3);
  poller.setReadBytesMax(1 << 20);
  const std::string held = taken.Metrics();
  EXPECT_EQ(poller::kTurns.Text(poller), "7");
  EXPECT_EQ(poller::kReadsWait.Text(poller), "?");
  EXPECT_EQ(poller::kReadBytesMax.Text(poller), "1.00 MiB");
  EXPECT_THAT(held, HasSubstr("hawser_poller_turns_total{poller=\"tcp 0\"} 7\n"));
  EXPECT_THAT(held, HasSubstr("hawser_poller_read_bytes_max{poller=\"tcp 0\"} 1048576\n"));
  EXPECT_THAT(held, HasSubstr("# TYPE hawser_poller_reads_waiting gauge\n"));
  EXPECT_THAT(held, Not(HasSubstr("hawser_poller_reads_waiting{")));
  poller.setAnswered(true);
  EXPECT_EQ(poller::kReadsWait.Text(poller), "3");
  EXPECT_THAT(taken.Metrics(), HasSubstr("hawser_poller_reads_waiting{poller=\"tcp 0\"} 3\n"));
}

TEST(FactsTest, WhatTheSystemDoesNotSayIsNoMetric) {
  Taken taken;
  auto process = taken.snapshot().initProcess();
  EXPECT_FALSE(process::kOpenFiles.IsKnown(process));
  EXPECT_THAT(taken.Metrics(), Not(HasSubstr("process_open_fds")));
  process.setOpenFiles(5);
  EXPECT_THAT(taken.Metrics(), HasSubstr("process_open_fds 5\n"));
}

TEST(FactsTest, TimesAreSecondsAsMetricsAndHaveAUnitElsewhere) {
  Taken taken;
  auto process = taken.snapshot().initProcess();
  process.setCpuNs(1'500'000'000);
  EXPECT_EQ(process::kCpu.Text(process), "1.50 s");
  EXPECT_THAT(taken.Metrics(), HasSubstr("process_cpu_seconds_total 1.5\n"));
}

TEST(FactsDeathTest, AFactThatIsReadAsWhatItIsNotIsAMistake) {
  constexpr Fact<process::Row> kCpu = {.get = &process::Row::getCpuNs, .known = Known::kOfAnswer};
  Taken taken;
  const process::Row row = taken.snapshot().initProcess();
  EXPECT_DEATH((void)kCpu.Text(row), "does not say whether it was answered");
  EXPECT_DEATH((void)ColumnOf(kCpu), "no table has this fact");
}

}  // namespace
}  // namespace hawser::observe
