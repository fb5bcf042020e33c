#include "hawser/tests/chaos/errands.h"

#include <signal.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "hawser/tests/chaos/contents.h"

namespace hawser::chaos {
namespace {

namespace fs = std::filesystem;

constexpr char kKv[] = "examples/kv/client/kv";
// For a connect, some calls one after the other, and a stop of a few seconds, on a busy machine.
constexpr absl::Duration kKvMax = absl::Seconds(90);
constexpr size_t kLoadedMax = 3;

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

Errands::Errands(Options options, History* history, const Ledger* ledger)
    : options_(std::move(options)), history_(history), ledger_(ledger), random_(options_.seed) {
  fs::create_directories(options_.folder);
}

void Errands::Start() {
  stopping_ = false;
  thread_ = std::thread([this] { Run(); });
}

void Errands::Stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

std::string Errands::Signal(int signal) {
  absl::MutexLock lock(&mutex_);
  if (current_ == nullptr) return "";
  if (signal == SIGKILL) harmed_ = true;
  current_->Signal(signal);
  return current_->name();
}

Errands::Result Errands::Kv(const std::string& target, const std::vector<std::string>& words) {
  std::vector<std::string> command = {kKv, "--target=" + target, "--timeout=5s"};
  command.insert(command.end(), words.begin(), words.end());
  Result result;
  result.epoch = ledger_->epoch;
  const std::string log = absl::StrCat(options_.folder, "/stderr.", ++number_);
  auto process =
      std::make_shared<Process>(absl::StrCat("kv ", words[0], " of ", options_.name), command, log);
  {
    absl::MutexLock lock(&mutex_);
    current_ = process;
    harmed_ = false;
  }
  const std::optional<int> status = process->Wait(kKvMax);
  {
    absl::MutexLock lock(&mutex_);
    current_ = nullptr;
    result.harmed = harmed_;
  }
  if (!status) {
    history_->Wrong(absl::StrCat(process->name(), " has not ended within ", absl::FormatDuration(kKvMax)));
  }
  result.status = status.value_or(-1);
  result.output = process->output();
  result.errors = process->errors();
  result.certain = result.epoch % 2 == 0 && ledger_->epoch == result.epoch;
  fs::remove(log);
  if (result.status == 0) ++done_;
  return result;
}

void Errands::Judge(const Result& result, const std::string& what) {
  if (result.status == 0 || (result.harmed && result.status == 128 + SIGKILL)) return;
  if (result.status == 1 && (absl::StrContains(result.errors, "UNAVAILABLE") ||
                             absl::StrContains(result.errors, "DEADLINE_EXCEEDED") ||
                             absl::StrContains(result.errors, "NOT_FOUND"))) {
    return;
  }
  history_->Wrong(absl::StrCat("kv ", what, " ended with ", result.status, ": ", result.errors));
}

void Errands::Load() {
  const std::string prefix = absl::StrCat("f/", options_.name, "/", number_, "/");
  const std::string folder = absl::StrCat(options_.folder, "/files");
  fs::remove_all(folder);
  fs::create_directories(folder);
  std::vector<std::string> keys;
  for (uint64_t i = 0, count = 1 + Below(2); i < count; ++i) {
    keys.push_back(absl::StrCat(prefix, i));
    std::string bytes(kContentsBytesMin + Below(options_.file_bytes_max - kContentsBytesMin), '\0');
    FillContents(keys.back(), 1, reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
    std::ofstream(absl::StrCat(folder, "/", i), std::ios::binary) << bytes;
  }
  const Result result = Kv(AnyTarget(), {"load", folder, "--prefix=" + prefix});
  Judge(result, "load");
  if (result.status != 0 || !result.certain) return;
  for (std::string& key : keys) loaded_.push_back({std::move(key), result.epoch});
}

void Errands::Get(const Loaded& loaded, bool quiet) {
  const std::string path = absl::StrCat(options_.folder, "/got");
  fs::remove(path);
  const Result result =
      Kv(quiet ? options_.targets.back() : AnyTarget(), {"get", loaded.key, "--out=" + path});
  Judge(result, "get");
  if (result.status == 0) {
    const std::string bytes = Contents(path);
    std::string why;
    if (CheckContents(loaded.key, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &why) == 0) {
      history_->Wrong(absl::StrCat("kv get ", loaded.key, ": ", why));
    }
    return;
  }
  const bool must_be_there = result.certain && result.epoch == loaded.epoch;
  if (must_be_there && (quiet || absl::StrContains(result.errors, "NOT_FOUND"))) {
    history_->Wrong(absl::StrCat("kv get ", loaded.key, ", which was loaded: ", result.errors));
  }
}

void Errands::FillPages(bool quiet) {
  const Result result =
      Kv(quiet ? options_.targets.back() : AnyTarget(),
         {"bench", "--workload=c", "--records=1200", "--value_size=16", "--operations=0", "--prefix=pages/"});
  Judge(result, "bench");
  if (quiet && result.status != 0)
    history_->Wrong(absl::StrCat("kv bench when all is well: ", result.errors));
}

void Errands::Run() {
  while (!stopping_) {
    if (Below(10) == 0) {
      FillPages(/*quiet=*/false);
    } else if (loaded_.size() > kLoadedMax) {
      Judge(Kv(AnyTarget(), {"del", loaded_.front().key}), "del");
      loaded_.pop_front();  // If it failed, nothing is known of it any more.
    } else if (loaded_.empty() || Below(2) == 0) {
      Load();
    } else {
      Get(loaded_[Below(loaded_.size())], /*quiet=*/false);
    }
  }
}

void Errands::VerifyAndClean() {
  for (const Loaded& loaded : loaded_) {
    if (loaded.epoch == ledger_->epoch) Get(loaded, /*quiet=*/true);
  }
  loaded_.clear();
  const std::string& target = options_.targets.back();
  const Result list = Kv(target, {"list", absl::StrCat("f/", options_.name, "/")});
  if (list.status != 0) history_->Wrong(absl::StrCat("kv list when all is well: ", list.errors));
  for (absl::string_view line : absl::StrSplit(list.output, '\n', absl::SkipEmpty())) {
    const std::string key(line.substr(0, line.find('\t')));
    const Result del = Kv(target, {"del", key});
    if (del.status != 0) history_->Wrong(absl::StrCat("kv del when all is well: ", del.errors));
  }
}

}  // namespace hawser::chaos
