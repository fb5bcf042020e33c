#include "hawser/tests/chaos/stillness.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "hawser/tests/chaos/ledger.h"

namespace hawser::chaos {
namespace {

// A pool keeps registered memory until nothing has used it for some seconds. A process may therefore still
// have the most that it needed at once, and the first comparison comes before there was any harm. A client
// needs a value of 512 KiB at most for each request and each answer of its 12 workers, and as much again for
// connections that are lost and not yet flushed. The server needs the requests of 36 workers, and the values
// that they replace.
constexpr double kClientMibMore = 24;
constexpr double kServerMibMore = 36;
// The last put of each key has one of 64 sizes.
constexpr double kValueKibMore = Ledger::kClients * ClientRecord::kKeysMax * 64.0 / 1024;
// A kept value holds at most a quarter more than its bytes and 512 (ServerContext::KeepBytes()); each entry
// counts some hundred bytes beside.
constexpr double kHeldShareMax = 1.25;
constexpr double kEntryBytesMax = 512 + 512;
// Messages that are kept for the next call hold 4 KiB each, 256 of them in either of two places.
constexpr double kLeasedMibMore = 2;

void Compare(absl::string_view what, double before, double after, double more_max, History& history) {
  if (after <= before + more_max) return;
  history.Wrong(absl::StrFormat("%s: %g before, %g after", what, before, after));
}

}  // namespace

std::string ToString(const Stillness& still) {
  std::string text;
  for (const auto& [name, value] : still.stats) absl::StrAppend(&text, name, " ", value, ", ");
  absl::StrAppendFormat(&text, "server: %d files, %.1f MiB; client 0: %d files, %.1f MiB", still.server_files,
                        still.server_mib, still.client_files, still.client_mib);
  return text;
}

bool MemoryIsBack(const Stillness& before, const Stillness& after) {
  return after.client_mib <= before.client_mib + kClientMibMore &&
         after.server_mib <= before.server_mib + kServerMibMore;
}

void CompareClient(const Stillness& before, const Stillness& after, History& history) {
  Compare("open files of client 0", before.client_files, after.client_files, 0, history);
  Compare("MiB of client 0", before.client_mib, after.client_mib, kClientMibMore, history);
}

void CompareServer(Stillness before, Stillness after, History& history) {
  Compare("open files of the server", before.server_files, after.server_files, 0, history);
  Compare("MiB of the server", before.server_mib, after.server_mib, kServerMibMore, history);
  for (const char* what : {"keys", "connections", "watches", "calls_running"}) {
    Compare(absl::StrCat(what, " of the server"), static_cast<double>(before.stats[what]),
            static_cast<double>(after.stats[what]), 0, history);
  }
  Compare("value KiB of the server", static_cast<double>(before.stats["value_bytes"]) / 1024,
          static_cast<double>(after.stats["value_bytes"]) / 1024, kValueKibMore, history);
  // Which of the classes a value got depends on what was free.
  const auto leased_for_others = [](Stillness& still) {
    return (static_cast<double>(still.stats["leased_bytes"]) -
            static_cast<double>(still.stats["memory_bytes"])) /
           (1 << 20);
  };
  Compare("leased MiB of the server, but for keys and values", leased_for_others(before),
          leased_for_others(after), kLeasedMibMore, history);
  const double held_max = kHeldShareMax * static_cast<double>(after.stats["value_bytes"]) +
                          kEntryBytesMax * static_cast<double>(after.stats["keys"]);
  if (static_cast<double>(after.stats["memory_bytes"]) > held_max) {
    history.Wrong(absl::StrFormat("keys and values hold %d bytes, wanted: %g at most",
                                  after.stats["memory_bytes"], held_max));
  }
}

}  // namespace hawser::chaos
