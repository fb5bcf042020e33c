#include "hawser/tools/hawser/help.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "hawser/tools/hawser/commands.h"

namespace hawser::tool {
namespace {

constexpr char kSummary[] = "asks a Hawser server";
constexpr char kText[] =
    "hawser COMMAND --target=URI ... asks the server at an address what it serves, calls its methods, and "
    "says whether it is well. What it knows of the server's schemas it learns from the server (reflection), "
    "so it needs an address and nothing else. With --json everything that it prints on stdout is JSON, "
    "errors too.";
constexpr char kExitStatus[] =
    "0: done. 1: the server, or the call, said no; or it could not be reached; or what was asked for is not "
    "well. 2: the command line is wrong, which is known without the server. JSON that does not fit a method "
    "is 1.";

// `text`, in lines of kHelpColumns behind `indent` spaces, the first one behind what stands there already.
std::string Wrapped(absl::string_view text, size_t indent, size_t first_at) {
  std::string out;
  size_t column = first_at;
  bool starts = true;
  for (absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (!starts && column + 1 + word.size() > kHelpColumns) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '));
      column = indent;
    } else if (!starts) {
      out += ' ';
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
    starts = false;
  }
  return out;
}

// Paragraphs: lines that begin with a space stay.
std::string Paragraphs(absl::string_view text) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&out, absl::StartsWith(line, " ") ? std::string(line) : Wrapped(line, 0, 0), "\n");
  }
  return out;
}

std::string NameOf(const Flags::Info& flag) {
  return absl::StrCat("--", flag.name, flag.value.empty() ? "" : absl::StrCat("=", flag.value));
}

std::string FlagTexts(const std::vector<Flags::Info>& flags) {
  constexpr size_t kColumn = 26;
  std::string out;
  for (const Flags::Info& flag : flags) {
    std::string head = absl::StrCat("  ", NameOf(flag));
    if (head.size() + 2 > kColumn) {
      absl::StrAppend(&out, head, "\n", std::string(kColumn, ' '));
    } else {
      absl::StrAppend(&out, head, std::string(kColumn - head.size(), ' '));
    }
    absl::StrAppend(&out, Wrapped(flag.text, kColumn, kColumn), "\n");
  }
  return out;
}

// "Lists the services.", of a command's summary.
std::string Sentence(absl::string_view summary) {
  std::string sentence = absl::StrCat(summary, ".");
  sentence[0] = absl::ascii_toupper(static_cast<unsigned char>(sentence[0]));
  return sentence;
}

std::string Indented(absl::string_view lines) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(lines, '\n')) absl::StrAppend(&out, "  ", line, "\n");
  return out;
}

// ---- man(7)

std::string ManText(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"`", "\\(ga"}, {"^", "\\(ha"}, {"~", "\\(ti"}});
}

std::string ManLine(absl::string_view text) {
  const std::string line = ManText(text);
  // A line that began with a dot would be a request.
  return absl::StrCat(absl::StartsWith(line, ".") ? "\\&" : "", line, "\n");
}

std::string ManParagraphs(absl::string_view text) {
  std::string out;
  bool verbatim = false;
  bool starts = true;  // A paragraph has its .PP already.
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const bool stays = absl::StartsWith(line, " ");
    if (stays != verbatim) {
      out += stays ? ".PP\n.nf\n" : ".fi\n";
      if (!stays && !line.empty()) out += ".PP\n";
      verbatim = stays;
      starts = true;
    }
    if (line.empty()) {
      if (!starts) out += ".PP\n";
      starts = true;
      continue;
    }
    out += ManLine(line);
    starts = false;
  }
  if (verbatim) out += ".fi\n";
  return out;
}

std::string ManFlags(const std::vector<Flags::Info>& flags) {
  std::string out;
  for (const Flags::Info& flag : flags) {
    absl::StrAppend(&out, ".TP\n.B ", ManText(NameOf(flag)), "\n", ManLine(flag.text));
  }
  return out;
}

}  // namespace

void AddFlagsOf(Command& command, Session& session, bool& help, Flags& flags) {
  if (command.needs() != Needs::kNothing) {
    flags.Text("target", "URI", "the server: tcp://HOST:PORT, rdma://HOST:PORT or auto://HOST:PORT",
               &session.target);
    flags.Duration("timeout", "for connecting and for each call, such as 500ms or 2m (default 10s)",
                   &session.timeout);
    flags.Switch("json", "prints JSON instead of text", &session.json);
  }
  command.AddFlags(flags);
  if (command.needs() == Needs::kTarget) {
    flags.Text("tls_certificate", "FILE",
               "PEM: the certificate of this client. All three, or none, are needed for TLS",
               &session.tls.certificate);
    flags.Text("tls_key", "FILE", "PEM: its key", &session.tls.key);
    flags.Text("tls_authorities", "FILE", "PEM: the authorities that the server's certificate may come from",
               &session.tls.authorities);
    flags.Text(
        "tls_server_name", "NAME",
        "the name that the server's certificate must have: a DNS name, an IP address, or a URI such as "
        "spiffe://example.org/kv (default: the host of the target)",
        &session.tls.server_name);
  }
  flags.Switch("help", "prints what this command is for", &help);
}

std::vector<Flags::Info> FlagsOf(Command& command) {
  Session session;
  bool help;
  Flags flags;
  AddFlagsOf(command, session, help, flags);
  return flags.infos();
}

std::string UsageOf(const Command& command) {
  std::string usage = absl::StrCat("hawser ", command.help().name);
  if (command.needs() == Needs::kTarget) usage += " --target=URI";
  if (command.needs() == Needs::kMayHaveTarget) usage += " [--target=URI]";
  absl::StrAppend(&usage, " [FLAGS]");
  if (*command.help().words != '\0') absl::StrAppend(&usage, " ", command.help().words);
  return usage;
}

std::string HelpOfAll() {
  std::string out =
      absl::StrCat("usage: hawser COMMAND [FLAGS] ...\n\n", Wrapped(kText, 0, 0), "\n\nCommands:\n");
  for (const auto& command : AllCommands()) {
    const std::string head = absl::StrCat("  ", command->help().name);
    absl::StrAppend(&out, head, std::string(14 - head.size(), ' '), Wrapped(command->help().summary, 14, 14),
                    "\n");
  }
  absl::StrAppend(&out, "\n",
                  Wrapped("`hawser COMMAND --help` says more of each; flags may stand anywhere.", 0, 0),
                  "\n\nExit status:\n", Wrapped(kExitStatus, 0, 0), "\n");
  return out;
}

std::string HelpOf(Command& command) {
  const CommandHelp& help = command.help();
  return absl::StrCat("usage: ", UsageOf(command), "\n\n", Sentence(help.summary), "\n\n",
                      Paragraphs(help.text), "\nFlags:\n", FlagTexts(FlagsOf(command)),
                      *help.examples == '\0' ? "" : absl::StrCat("\nExamples:\n", Indented(help.examples)));
}

std::string ManPage() {
  std::string out =
      absl::StrCat(".TH HAWSER 1 \"\" \"Hawser\" \"Hawser\"\n.SH NAME\nhawser \\- ", kSummary,
                   "\n.SH SYNOPSIS\n.B hawser\n.I COMMAND\n[\\fIFLAGS\\fR] ...\n.SH DESCRIPTION\n",
                   ManParagraphs(kText), ".SH COMMANDS\n");
  for (const auto& command : AllCommands()) {
    const CommandHelp& help = command->help();
    absl::StrAppend(&out, ".SS ", ManText(UsageOf(*command)), "\n", ManLine(Sentence(help.summary)), ".PP\n",
                    ManParagraphs(help.text), ManFlags(FlagsOf(*command)));
    if (*help.examples != '\0')
      absl::StrAppend(&out, ".PP\nExamples:\n", ManParagraphs(Indented(help.examples)));
  }
  absl::StrAppend(&out, ".SH EXIT STATUS\n", ManParagraphs(kExitStatus));
  return out;
}

}  // namespace hawser::tool
