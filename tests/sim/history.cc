#include "hawser/tests/sim/history.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace hawser::sim {
namespace {

constexpr int kRowPixels = 16, kTopPixels = 40, kTimesPixels = 130, kHostPixels = 360;

int XOf(int host) { return host == 0 ? kTimesPixels : kTimesPixels + 40 + (host - 1) * kHostPixels; }
int YOf(size_t row) { return kTopPixels + static_cast<int>(row + 1) * kRowPixels; }

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string TimeOf(int64_t ns) { return absl::StrFormat("%.6f ms", static_cast<double>(ns) / 1e6); }

}  // namespace

void TextHistory::Happened(int64_t now_ns, int host, absl::string_view what) {
  absl::PrintF("%18s  %s%s\n", TimeOf(now_ns), host == 0 ? "" : absl::StrCat("host ", host, ": "), what);
}

void TextHistory::Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) {
  absl::PrintF("%18s  host %d -> host %d: %s, after %d ns\n", TimeOf(now_ns), from, to, what,
               now_ns - sent_ns);
}

void ChartHistory::Happened(int64_t now_ns, int host, absl::string_view what) {
  entries_.push_back({now_ns, now_ns, host, host, std::string(what)});
}

void ChartHistory::Arrived(int64_t sent_ns, int from, int64_t now_ns, int to, absl::string_view what) {
  entries_.push_back({sent_ns, now_ns, from, to, std::string(what)});
}

absl::Status ChartHistory::Write(const std::string& path) const {
  // There is one row for each point in time at which something starts or arrives. Events at the same time
  // have a row each.
  std::multimap<int64_t, size_t> starts;
  int hosts = 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    hosts = std::max({hosts, entry.from, entry.to});
    if (entry.from != entry.to) starts.emplace(entry.sent_ns, i);
  }
  std::vector<size_t> start_row(entries_.size()), end_row(entries_.size());
  std::vector<int64_t> time_of_row;
  auto start = starts.begin();
  for (size_t i = 0; i < entries_.size(); ++i) {  // In the order of their ends.
    for (; start != starts.end() && start->first <= entries_[i].now_ns; ++start) {
      start_row[start->second] = time_of_row.size();
      time_of_row.push_back(start->first);
    }
    end_row[i] = time_of_row.size();
    time_of_row.push_back(entries_[i].now_ns);
  }

  std::ofstream out(path);
  const int width = XOf(hosts) + kHostPixels, height = YOf(time_of_row.size()) + kRowPixels;
  out << absl::StrFormat(
      "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' font-family='monospace' "
      "font-size='11'>\n"
      "<defs><marker id='a' markerWidth='8' markerHeight='8' refX='7' refY='3' orient='auto'>"
      "<path d='M0,0 L7,3 L0,6 z'/></marker></defs>\n"
      "<rect width='100%%' height='100%%' fill='white'/>\n",
      width, height);
  for (int host = 1; host <= hosts; ++host) {
    out << absl::StrFormat(
        "<text x='%d' y='%d' font-weight='bold' text-anchor='middle'>host %d</text>\n"
        "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='#bbb'/>\n",
        XOf(host), kTopPixels - 16, host, XOf(host), kTopPixels, XOf(host), height);
  }
  for (size_t row = 0; row < time_of_row.size(); ++row) {
    out << absl::StrFormat("<text x='%d' y='%d' fill='#888' text-anchor='end'>%s</text>\n", kTimesPixels - 8,
                           YOf(row) + 4, TimeOf(time_of_row[row]));
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const int x = XOf(entry.to), y = YOf(end_row[i]);
    const std::string what = Escaped(entry.what);
    if (entry.from == entry.to) {
      if (entry.to != 0) out << absl::StrFormat("<circle cx='%d' cy='%d' r='2.5'/>\n", x, y);
      out << absl::StrFormat("<text x='%d' y='%d'>%s</text>\n", x + 8, y + 4, what);
      continue;
    }
    const int from_x = XOf(entry.from), from_y = YOf(start_row[i]);
    out << absl::StrFormat(
        "<line x1='%d' y1='%d' x2='%d' y2='%d' stroke='#36c' marker-end='url(#a)'/>\n"
        "<text x='%d' y='%d' fill='#36c' text-anchor='middle'>%s</text>\n",
        from_x, from_y, x, y, (from_x + x) / 2, (from_y + y) / 2 - 3, what);
  }
  out << "</svg>\n";
  out.close();
  if (out) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path, ": ", strerror(errno)));
}

}  // namespace hawser::sim
