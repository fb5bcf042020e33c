#include "hawser/bench/greeting_flood.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "bench/bench.rpc.h"
#include "hawser/bench/honest.h"
#include "hawser/bench/report.h"
#include "hawser/bench/stranger_target.h"
#include "hawser/bench/target.h"

namespace hawser::bench {
namespace {

constexpr double kConnectMaxUs = 1e6;
constexpr absl::Duration kPause = absl::Milliseconds(50);  // Between two honest clients.

struct Visits {
  std::vector<double> connect_us, put_us;
  int failed = 0;
  double worst_resident_bytes = 0;

  void One(const ServerProcess& server, const std::shared_ptr<transport::Runtime>& runtime,
           size_t put_bytes) {
    const absl::Time start = absl::Now();
    ChannelOptions options;
    options.runtime = runtime;
    options.default_timeout = absl::Seconds(60);
    const absl::StatusOr<std::shared_ptr<Channel>> channel = Channel::Connect(server.address(), options);
    if (!channel.ok()) return Fail(channel.status());
    const absl::Time connected = absl::Now();
    connect_us.push_back(absl::ToDoubleMicroseconds(connected - start));
    absl::StatusOr<Buffer> buffer = (*channel)->AllocateBuffer(put_bytes);
    if (!buffer.ok()) return Fail(buffer.status());
    memset(buffer->data(), 'p', put_bytes);
    auto call = TargetStub(*channel).Put();
    call.request().adoptPayload(call.Attach(*std::move(buffer)));
    auto reply = call.Send().Wait();
    if (!reply.ok()) return Fail(reply.status());
    put_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - connected));
    worst_resident_bytes = std::max(worst_resident_bytes, ResidentBytes(server.pid()));
  }

  void Fail(const absl::Status& why) {
    ++failed;
    fprintf(stderr, "bench: an honest client: %s\n", why.ToString().c_str());
  }

  void AddTo(Report& report, const std::string& name) const {
    report.Add(name + "_clients", static_cast<double>(connect_us.size()))
        .Add(name + "_failed", failed)
        .Add(name + "_connect_p50_us", Median(connect_us))
        .Add(name + "_connect_p99_us", Quantile(connect_us, 0.99))
        .Add(name + "_connect_max_us", Quantile(connect_us, 1))
        .Add(name + "_put_p50_us", Median(put_us))
        .Add(name + "_put_max_us", Quantile(put_us, 1));
  }
};

}  // namespace

bool FloodWithGreetings(int greetings, absl::Duration time, size_t put_bytes, const std::string& mode) {
  TargetOptions target;
  target.mode = mode;
  target.slots = 32;
  PinTo(target.pin, /*server=*/false);
  const ServerProcess server = StartTarget(target);
  const std::shared_ptr<transport::Runtime> runtime = MakeRuntime(target);
  const auto visit_for = [&](Visits& visits, absl::Duration how_long) {
    const absl::Time end = absl::Now() + how_long;
    do {
      visits.One(server, runtime, put_bytes);
      absl::SleepFor(kPause);
    } while (absl::Now() < end);
  };
  Visits alone, beside;
  visit_for(alone, time / 10);
  strangers::CrowdCounts flood;
  {
    // As many as are there at once, of which each comes again and again.
    const absl::Duration stay = absl::Nanoseconds(strangers::kLingerNs);
    const double at_once = greetings * std::min(1.0, absl::FDivDuration(stay, time));
    strangers::CrowdOptions options = CrowdOf(server, "lingering", std::max(1, static_cast<int>(at_once)));
    options.arrival = std::min(stay, time);
    options.from = strangers::From::kOne;
    strangers::Crowd crowd(options);
    visit_for(beside, time);
    flood = crowd.counts();
  }
  Report report("greetings");
  report.Add("greetings", static_cast<double>(flood.dials))
      .Add("accepted", static_cast<double>(flood.accepted))
      .Add("rejected", static_cast<double>(flood.rejected))
      .Add("seconds", absl::ToDoubleSeconds(time));
  alone.AddTo(report, "alone");
  beside.AddTo(report, "honest");
  report.Add("server_resident_start_bytes", alone.worst_resident_bytes)
      .Add("server_resident_worst_bytes", beside.worst_resident_bytes);
  return alone.failed + beside.failed == 0 && Quantile(beside.connect_us, 1) <= kConnectMaxUs;
}

}  // namespace hawser::bench
