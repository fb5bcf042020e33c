#include "hawser/tests/chaos/stillness.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "hawser/tests/chaos/ledger.h"

namespace hawser::chaos {
namespace {

// What is registered once is kept for later, so what counts is the most that was needed at once, and the
// first comparison comes before there was any harm. In a client that is a value of 512 KiB at most for each
// of 12 workers' requests and answers, and as much again for connections that are lost and not yet flushed;
// in the server the requests of 36 workers, and the values that they replace.
constexpr double kClientMibMore = 24;
constexpr double kServerMibMore = 36;
// The last put of each key has one of 64 sizes; memory for it comes in steps of a quarter more.
constexpr double kValueKibMore = Ledger::kClients * ClientRecord::kKeysMax * 64 * 1.25 / 1024;
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
  Compare("leased MiB of the server", static_cast<double>(before.stats["leased_bytes"]) / (1 << 20),
          static_cast<double>(after.stats["leased_bytes"]) / (1 << 20), kLeasedMibMore, history);
}

}  // namespace hawser::chaos
