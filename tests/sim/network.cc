#include "hawser/tests/sim/network.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "hawser/tests/sim/sim_queue_pair.h"

namespace hawser::sim {
namespace {

constexpr int64_t kLongestWaitNs = 600'000'000'000;

std::pair<int, int> Unordered(int host, int other) { return {std::min(host, other), std::max(host, other)}; }

}  // namespace

Network::Network(const NetworkOptions& options) : options_(options), dice_(options.seed) {}

Network::~Network() = default;

void Network::FillRandom(absl::Span<uint8_t> bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(dice_.Next() >> 32);
}

bool Network::Await(absl::Mutex& mutex, absl::CondVar&, absl::FunctionRef<bool()> condition,
                    absl::Time deadline) {
  const int64_t deadline_ns =
      deadline == absl::InfiniteFuture() ? transport::kNever : absl::ToUnixNanos(deadline);
  // A wait that never ends breaks a rule, too.
  const int64_t give_up_ns = std::min(deadline_ns, NowNs() + kLongestWaitNs);
  while (!condition()) {
    if (NowNs() >= give_up_ns) {
      if (NowNs() >= deadline_ns) return false;
      std::fprintf(stderr, "at %ld ns: somebody has waited in vain for %ld ns\n", NowNs(), kLongestWaitNs);
      std::abort();
    }
    mutex.Unlock();
    step(give_up_ns);
    mutex.Lock();
  }
  return true;
}

void Network::AdvanceTo(int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  while (!events_.empty() && events_.top().when_ns <= now_ns) {
    now_ns_.store(std::max(NowNs(), events_.top().when_ns), std::memory_order_relaxed);
    RunDue();
  }
  now_ns_.store(std::max(NowNs(), now_ns), std::memory_order_relaxed);
  changed_.notify_all();
}

int64_t Network::next_ns() {
  std::lock_guard<std::mutex> lock(mutex_);
  return events_.empty() ? transport::kNever : events_.top().when_ns;
}

void Network::RunDue() {
  while (!events_.empty() && events_.top().when_ns <= NowNs()) {
    const std::function<void()> run = events_.top().run;
    events_.pop();
    run();
  }
}

void Network::At(int64_t when_ns, std::function<void()> event) {
  events_.push({when_ns, ++event_count_, std::move(event)});
  changed_.notify_all();
}

void Network::SwitchOff(int host) {
  std::lock_guard<std::mutex> lock(mutex_);
  Note(host, "is switched off");
  off_.insert(host);
  for (const auto& [qp_num, queue_pair] : queue_pairs_) {
    if (queue_pair->host() == host) queue_pair->PowerLost();
  }
}

void Network::SwitchOn(int host) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (off_.erase(host) != 0) Note(host, "is switched on");
}

void Network::Cut(int host, int other) {
  std::lock_guard<std::mutex> lock(mutex_);
  Note(other, absl::StrCat("the link to host ", host, " is cut"));
  cut_.insert(Unordered(host, other));
}

void Network::Heal(int host, int other) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (cut_.erase(Unordered(host, other)) != 0)
    Note(other, absl::StrCat("the link to host ", host, " is whole"));
}

void Network::RemoveDevice(int host) {
  std::lock_guard<std::mutex> lock(mutex_);
  Note(host, "the device is removed");
  for (const auto& [qp_num, queue_pair] : queue_pairs_) {
    if (queue_pair->host() == host) queue_pair->DeviceRemoved();
  }
}

void Network::SetReadService(int host, std::optional<ReadService> service) {
  std::lock_guard<std::mutex> lock(mutex_);
  read_services_.erase(host);
  if (service.has_value()) read_services_[host] = *service;
  for (const auto& [qp_num, queue_pair] : queue_pairs_) {
    if (queue_pair->host() == host) queue_pair->responder().OnReadServiceChanged();
  }
}

int64_t Network::TakeAtomicUnit(int host, int64_t duration_ns) {
  int64_t& free_ns = atomic_units_free_ns_[host];
  const int64_t start_ns = std::max(NowNs(), free_ns);
  free_ns = start_ns + duration_ns + 1;
  return start_ns;
}

ReadService Network::ReadServiceOf(int host) const {
  const auto found = read_services_.find(host);
  return found != read_services_.end() ? found->second
                                       : ReadService{faults().read_chunk_bytes, faults().read_chunk_ns};
}

void Network::SetFaults(const Faults& faults) {
  std::lock_guard<std::mutex> lock(mutex_);
  options_.faults = faults;
}

std::vector<std::string> Network::TakeViolations() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(violations_, {});
}

bool Network::Reachable(int host, int other) const {
  return IsOn(host) && IsOn(other) && cut_.count(Unordered(host, other)) == 0;
}

void Network::Violation(absl::string_view what) {
  Note(0, absl::StrCat("VIOLATION: ", what));
  violations_.emplace_back(what);
}

void Network::Note(int host, absl::string_view what) {
  if (history != nullptr) history->Happened(NowNs(), host, what);
}

uint32_t Network::AddQueuePair(SimQueuePair* queue_pair) {
  queue_pairs_.emplace(++last_qp_num_, queue_pair);
  return last_qp_num_;
}

SimQueuePair* Network::FindQueuePair(uint32_t qp_num) const {
  const auto it = queue_pairs_.find(qp_num);
  return it == queue_pairs_.end() ? nullptr : it->second;
}

bool Network::AddListener(const std::string& host_address, uint16_t* port, SimListener* listener) {
  if (*port == 0) *port = ++last_port_;
  return listeners_.emplace(absl::StrCat(host_address, ":", *port), listener).second;
}

void Network::RemoveListener(SimListener* listener) {
  for (auto it = listeners_.begin(); it != listeners_.end(); ++it) {
    if (it->second == listener) {
      listeners_.erase(it);
      return;
    }
  }
}

SimListener* Network::FindListener(const std::string& address) const {
  const auto it = listeners_.find(address);
  return it == listeners_.end() ? nullptr : it->second;
}

void Network::SetIdentity(const tls::Context* context, std::shared_ptr<const PeerIdentity> identity) {
  std::lock_guard<std::mutex> lock(mutex_);
  identities_[context] = std::move(identity);
}

void Network::NoteConnect(const std::string& private_data, bool lost) {
  constexpr size_t kSeenMax = 16;
  seen_connects_.push_back({private_data, lost});
  if (seen_connects_.size() > kSeenMax) seen_connects_.pop_front();
}

std::vector<Network::SeenConnect> Network::SeenConnects() {
  std::lock_guard<std::mutex> lock(mutex_);
  return {seen_connects_.begin(), seen_connects_.end()};
}

std::shared_ptr<const PeerIdentity> Network::IdentityOf(const tls::Context* context) const {
  if (context == nullptr) return nullptr;
  const auto found = identities_.find(context);
  if (found != identities_.end()) return found->second;
  return std::make_shared<PeerIdentity>(PeerIdentity{.is_authenticated = true});
}

}  // namespace hawser::sim
