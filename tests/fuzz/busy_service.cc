#include "hawser/tests/fuzz/busy_service.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "hawser/tests/fuzz/fuzz.h"

namespace hawser::fuzz {
namespace {

namespace ledger = sim::ledger;

constexpr size_t kAnswerMax = 600'000;
constexpr size_t kClientsMax = 8;
constexpr size_t kKeptMax = 4;
constexpr size_t kRunsMax = 64;

}  // namespace

void BusyService::AddMethods(MethodTable& table) {
  LedgerService::AddMethods(table);
  WatcherService::AddMethods(table);
}

absl::Status BusyService::Look(ServerContext& context, ledger::Entry::Reader request,
                               ledger::Entry::Builder reply) {
  return Add(context, request, reply);
}

absl::Status BusyService::Add(ServerContext& context, ledger::Entry::Reader request,
                              ledger::Entry::Builder reply) {
  const uint64_t id = request.getId();
  const capnp::Data::Reader bytes = request.getBytes();
  const auto content = static_cast<char>(id >> 8);
  if (context.peer_address().find("//10.0.0.2:") != std::string::npos) {  // The honest client.
    FUZZ_EXPECT(
        std::all_of(bytes.begin(), bytes.end(), [&](uint8_t byte) { return byte == uint8_t(content); }),
        "a request does not say what was sent");
  }
  reply.setId(id);
  const size_t answer_bytes = std::min<size_t>(request.getAnswerBytes(), kAnswerMax);
  absl::StatusOr<Buffer> buffer;
  if (id % 2 == 1 && !stopping && allocate) buffer = allocate(answer_bytes);
  if (id % 2 == 1 && buffer.ok()) {
    std::memset(buffer->data(), content, answer_bytes);
    auto owner = std::make_shared<Buffer>(*std::move(buffer));
    reply.adoptBytes(context.Attach(owner->reader(), owner));
  } else {
    std::memset(reply.initBytes(answer_bytes).begin(), content, answer_bytes);
  }
  if (stopping) return absl::OkStatus();
  switch (id % kAtOnce) {
    case 5:
      kept_requests_.push_back(context.Keep(request));
      FUZZ_EXPECT(kept_requests_.back()->getId() == id, "what is kept is not the request");
      if (kept_requests_.size() > kKeptMax) kept_requests_.pop_front();
      // An earlier one, whose call has ended.
      FUZZ_EXPECT(kept_requests_.front()->getId() % kAtOnce == 5, "what is kept has changed");
      return absl::OkStatus();
    case 6:
    case 7:
    case 8:
      Defer(context, id % 2 == 0);
      return absl::OkStatus();
    case 9: {
      absl::Status status = absl::AbortedError(std::string(30'000, 'e'));
      status.SetPayload("detail", absl::Cord(std::string(1'000, 'd')));
      return status;
    }
    case 10:
      throw std::runtime_error("thrown");
    case 11:  // Dropped.
      (void)context.Defer();
      return absl::OkStatus();
    case 12:
      Defer(context, false);
      runs_[last_run_].answered = true;
      return absl::AbortedError("deferred, and an error");
    case 13:
    case 14:
      return CallBack(context, id);
    default:
      return absl::OkStatus();
  }
}

absl::Status BusyService::CallBack(ServerContext& context, uint64_t id) {
  const std::shared_ptr<Channel> peer = context.peer();
  if (peer == nullptr) return absl::FailedPreconditionError("there is nobody to call back");
  Defer(context, false);
  auto call = ledger::WatcherStub(peer).Changed({.timeout = absl::Seconds(2)});
  call.request().setRevision(id);
  call.request().setWatch(UINT64_MAX - last_run_);
  call.Send().Then(
      [this, number = last_run_](const absl::StatusOr<Reply<ledger::Watcher::ChangedResults>>& reply) {
        Finish(number, reply.status());
      });
  return absl::OkStatus();
}

absl::Status BusyService::Watch(ServerContext& context, ledger::Ledger::WatchParams::Reader request,
                                ledger::Ledger::WatchResults::Builder reply) {
  reply.setRevision(request.getWatch());
  std::shared_ptr<Channel> peer = context.peer();
  if (peer == nullptr || stopping || clients_.size() == kClientsMax) return absl::UnavailableError("not now");
  Client& client = clients_.emplace_back();
  client.peer = std::move(peer);
  client.peer->OnClosed([&client] { FUZZ_EXPECT(++client.closings == 1, "a peer's channel closed twice"); });
  return absl::OkStatus();
}

absl::Status BusyService::Changed(ServerContext& context, ledger::Watcher::ChangedParams::Reader request,
                                  ledger::Watcher::ChangedResults::Builder) {
  if (request.getWatch() % 4 == 1) Defer(context, false);
  return request.getWatch() % 4 == 2 ? absl::AbortedError("no") : absl::OkStatus();
}

// ---- What runs

void BusyService::Defer(ServerContext& context, bool finish_when_cancelled) {
  if (runs_.size() == kRunsMax) Finish(runs_.begin()->first, absl::ResourceExhaustedError("too much to do"));
  const uint64_t number = ++last_run_;
  Run& run = runs_[number];
  run.deferred = context.Defer();
  context.OnCancel([this, number, finish_when_cancelled] {
    FUZZ_EXPECT(runs_.count(number) == 1, "told of the end of a call that was answered");
    FUZZ_EXPECT(++runs_[number].cancels == 1, "told twice");
    if (finish_when_cancelled) Finish(number, absl::OkStatus());
  });
}

void BusyService::Finish(uint64_t number, absl::Status status) {
  const auto found = runs_.find(number);
  if (found == runs_.end()) return;
  DeferredCall deferred = std::move(found->second.deferred);
  runs_.erase(found);
  deferred.Finish(std::move(status));
}

size_t BusyService::running() const {
  return static_cast<size_t>(
      std::count_if(runs_.begin(), runs_.end(), [](const auto& run) { return !run.second.answered; }));
}

void BusyService::FinishOne(uint8_t which, uint8_t how) {
  if (runs_.empty()) return;
  const auto at = std::next(runs_.begin(), which % static_cast<int>(runs_.size()));
  if (how % 4 == 3) {  // Dropped.
    const DeferredCall dropped = std::move(at->second.deferred);
    runs_.erase(at);
    return;
  }
  Finish(at->first, how % 4 == 2 ? absl::AbortedError("late, and no") : absl::OkStatus());
}

void BusyService::FinishAll() {
  while (!runs_.empty()) Finish(runs_.begin()->first, absl::OkStatus());
}

void BusyService::ExpectAllCancelled() const {
  for (const auto& [number, run] : runs_) {
    if (run.answered) continue;
    FUZZ_EXPECT(run.deferred.context().cancelled(), "a handler does not know that its caller is gone");
    FUZZ_EXPECT(run.cancels == 1, run.cancels);
  }
}

}  // namespace hawser::fuzz
