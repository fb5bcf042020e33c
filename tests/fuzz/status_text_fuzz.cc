// The texts of a snapshot, which peers may choose, on the status pages, in their JSON and in Prometheus's
// format.
//
// An input is a script: how much there is, then each text with its length before it. What comes out must be
// built as it is with harmless texts, so that no text can be markup, a further field or a further line.
#include <capnp/compat/json.h>
#include <capnp/message.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "hawser/base/peer_text.h"
#include "hawser/observe/json.h"
#include "hawser/observe/page.h"
#include "hawser/observe/prometheus.h"
#include "hawser/tests/fuzz/fuzz.h"
#include "hawser/tests/observe/busy_snapshot.h"

namespace hawser::fuzz {
namespace {

using observe::wire::Snapshot;

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == ':';
}

// Takes a name off the front.
absl::string_view TakeName(absl::string_view& text) {
  size_t length = 0;
  while (length < text.size() && IsNameCharacter(text[length])) ++length;
  const absl::string_view name = text.substr(0, length);
  text.remove_prefix(length);
  return name;
}

// Takes `expected` off the front.
void Take(absl::string_view expected, absl::string_view& text) {
  FUZZ_EXPECT(absl::StartsWith(text, expected), expected, " is not before ", text.substr(0, 80));
  text.remove_prefix(expected.size());
}

// HTML as its tags with the names of their attributes. Checks it on the way.
class Html {
 public:
  explicit Html(absl::string_view text) {
    FUZZ_EXPECT(IsUtf8(text));
    for (char c : text) FUZZ_EXPECT(c == '\n' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f));
    Take("<!doctype html>", text);
    while (!text.empty()) {
      if (text.front() == '<') {
        Tag(text);
      } else if (!open_.empty() && open_.back() == "style") {
        text.remove_prefix(std::min(text.find("</style>"), text.size()));
      } else if (text.front() == '&') {
        Reference(text);
      } else {
        FUZZ_EXPECT(!absl::StrContains("\"'>", text.substr(0, 1)), text.substr(0, 80));
        text.remove_prefix(1);
      }
    }
    FUZZ_EXPECT(open_.empty(), open_.back());
  }

  const std::string& tags() const { return tags_; }

 private:
  void Tag(absl::string_view& text) {
    Take("<", text);
    const bool ends = absl::ConsumePrefix(&text, "/");
    const absl::string_view name = TakeName(text);
    FUZZ_EXPECT(!name.empty() && name != "script", text.substr(0, 80));
    absl::StrAppend(&tags_, ends ? "</" : "<", name);
    if (ends) {
      FUZZ_EXPECT(!open_.empty() && open_.back() == name, name);
      open_.pop_back();
      Take(">", text);
      return;
    }
    while (absl::ConsumePrefix(&text, " ")) Attribute(text);
    const bool is_empty = absl::ConsumePrefix(&text, "/") || name == "meta" || name == "br";
    Take(">", text);
    if (!is_empty) open_.emplace_back(name);
  }
  void Attribute(absl::string_view& text) {
    absl::StrAppend(&tags_, " ", TakeName(text));
    if (!absl::ConsumePrefix(&text, "=")) return;
    if (!absl::ConsumePrefix(&text, "\"")) {
      while (!text.empty() && (IsNameCharacter(text.front()) || text.front() == '.')) text.remove_prefix(1);
      return;
    }
    while (!text.empty() && text.front() != '"') {
      FUZZ_EXPECT(text.front() != '<' && text.front() != '>', text.substr(0, 80));
      text.remove_prefix(1);
    }
    Take("\"", text);
  }
  static void Reference(absl::string_view& text) {
    for (absl::string_view known : {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"}) {
      if (absl::ConsumePrefix(&text, known)) return;
    }
    FUZZ_EXPECT(false, text.substr(0, 80));
  }

  std::string tags_;
  std::vector<std::string> open_;
};

// Prometheus's text format 0.0.4 as its lines without their values and those of labels. Checks it on the way.
std::string LinesOf(absl::string_view text) {
  FUZZ_EXPECT(IsUtf8(text));
  std::string names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty()) continue;
    if (absl::StartsWith(line, "# HELP ") || absl::StartsWith(line, "# TYPE ")) {
      absl::StrAppend(&names, line, "\n");
      continue;
    }
    absl::StrAppend(&names, TakeName(line));
    if (absl::ConsumePrefix(&line, "{")) {
      do {
        absl::StrAppend(&names, " ", TakeName(line));
        Take("=\"", line);
        while (!line.empty() && line.front() != '"') {
          if (line.front() == '\\') {
            FUZZ_EXPECT(line.size() > 1 && absl::StrContains("\\\"n", line.substr(1, 1)), line);
            line.remove_prefix(1);
          }
          line.remove_prefix(1);
        }
        Take("\"", line);
      } while (absl::ConsumePrefix(&line, ","));
      Take("}", line);
    }
    Take(" ", line);
    double value;
    FUZZ_EXPECT(line == "+Inf" || absl::SimpleAtod(line, &value), line);
    names += '\n';
  }
  return names;
}

// JSON is what kj's decoder takes. Where all texts are UTF-8, it is the snapshot. (The decoder of kj 0.9
// takes \u001b for U+0011.)
void CheckJson(const std::string& json, bool all_are_utf8) {
  FUZZ_EXPECT(IsUtf8(json));
  capnp::MallocMessageBuilder message;
  auto decoded = message.initRoot<Snapshot>();
  capnp::JsonCodec().decode(kj::StringPtr(json.c_str(), json.size()), decoded);
  const std::string again = observe::JsonOf(decoded.asReader());
  FUZZ_EXPECT(!all_are_utf8 || absl::StrContains(json, "\\u") || again == json, json, "\n", again);
}

struct Rendered {
  std::vector<std::string> pages;  // Their tags.
  std::string metrics;             // Its lines.
};

Rendered Render(const observe::BusyOptions& options, const std::function<void(Snapshot::Reader)>& check) {
  observe::History history(4);
  capnp::MallocMessageBuilder message;
  observe::BusyOptions now = options;
  for (int i = 0; i < 2; ++i) {
    now.taken_unix_ns += 1'000'000'000;
    observe::FillInBusy(now, message.initRoot<Snapshot>());
    history.Add(message.getRoot<Snapshot>());
  }
  const Snapshot::Reader snapshot = message.getRoot<Snapshot>().asReader();
  Rendered rendered;
  for (const observe::Page& page : observe::Pages()) {
    rendered.pages.push_back(Html(observe::ToHtml(page, snapshot, history, 0)).tags());
    FUZZ_EXPECT(IsUtf8(observe::ToJson(page, snapshot, history)), page.path);
  }
  rendered.metrics = LinesOf(observe::ToPrometheus(snapshot));
  check(snapshot);
  return rendered;
}

void Check(Script script) {
  observe::BusyOptions options = {
      .methods = script.Below(4), .connections = script.Below(4), .calls = script.Below(3)};
  options.pollers = script.Below(4);
  std::vector<std::string> texts;
  while (!script.empty()) texts.emplace_back(script.Bytes(script.Byte()));
  if (texts.empty()) return;
  bool all_are_utf8 = true;
  for (const std::string& text : texts) all_are_utf8 = all_are_utf8 && IsUtf8(text);

  // The same ones in both snapshots of the history.
  size_t next = 0;
  options.text = [&](std::string original) {
    if (original == "kv_server") next = 0;  // The first text of a snapshot.
    return texts[next++ % texts.size()];
  };
  const Rendered hostile =
      Render(options, [&](Snapshot::Reader snapshot) { CheckJson(observe::JsonOf(snapshot), all_are_utf8); });
  options.text = [&](std::string original) {
    if (original == "kv_server") next = 0;
    return texts[next++ % texts.size()].empty() ? "" : "harmless";
  };
  const Rendered harmless = Render(options, [](Snapshot::Reader) {});
  for (size_t i = 0; i < hostile.pages.size(); ++i) {
    FUZZ_EXPECT(hostile.pages[i] == harmless.pages[i], hostile.pages[i], "\n", harmless.pages[i]);
  }
  FUZZ_EXPECT(hostile.metrics == harmless.metrics, hostile.metrics, "\n", harmless.metrics);
}

// Three of everything, with these texts.
std::string Input(const std::vector<std::string>& texts) {
  std::string input = "\3\3\2\3";
  for (const std::string& text : texts) {
    input += static_cast<char>(text.size());
    input += text;
  }
  return input;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> Seeds() {
  return {
      {"plain", Input({"kv.capnp:KeyValue.get", "tcp://10.0.0.7:51234", "spiffe://example.org/web"})},
      {"markup", Input({"<script>alert(1)</script>", "\"'&<>", "</td></table>", "<!--", "]]>", "&lt;"})},
      {"json", Input({"\"},{\"", "\\\"", "\\u0022", "\n\t\b", std::string("a\0b", 3)})},
      {"prometheus", Input({"a\"} 1\nhawser_server_serving 0", "\\", "\\\"", "# TYPE x counter\n", "{}"})},
      {"not_utf8", Input({"\xff\xfe", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\x80"})},
      {"control", Input({"\x1b[31m\x07", "\x7f\xc2\x9b", "\r\n", "\xe2\x80\xae", "\xe2\x80\xa8"})},
      {"unicode", Input({"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", "\xef\xbf\xbf", "\xef\xbb\xbf"})},
      {"long", Input({std::string(255, '<'), std::string(199, 'a') + "\xc3\xa4"})},
      {"empty", Input({"", "a", ""})}};
}

}  // namespace hawser::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hawser::fuzz::Check(hawser::fuzz::Script(data, size));
  return 0;
}
