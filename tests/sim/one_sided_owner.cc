#include "hawser/tests/sim/one_sided_owner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace hawser::sim {
namespace {

constexpr size_t kRegionsMax = 3;
// What a client may take to give revoked memory back, and its lane to end after that.
constexpr int64_t kRevocationNs = 3 * kSecond;

}  // namespace

OneSidedOwner::OneSidedOwner(World& world, Dice& dice, std::function<void(const std::function<void()>&)> wait)
    : world_(world), dice_(dice), wait_(std::move(wait)) {
  world_.OnPeerAccess([this](const uint8_t* address, size_t length_bytes, bool writes) {
    // The newest has the memory, if an earlier one was destroyed.
    const auto found = std::find_if(regions_.rbegin(), regions_.rend(), [&](const OneSidedRegion& region) {
      return region.Has(address, length_bytes);
    });
    if (found == regions_.rend()) return;
    const std::string broken = found->OnAccess(address, length_bytes, writes);
    if (!broken.empty()) world_.Broken(broken);
  });
}

std::vector<OneSidedRegion*> OneSidedOwner::Regions() {
  std::vector<OneSidedRegion*> all;
  for (OneSidedRegion& region : regions_) {
    if (region.server_life() == life_ && !region.refused) all.push_back(&region);
  }
  return all;
}

void OneSidedOwner::Share(Server& server, bool must) {
  if (Regions().size() >= kRegionsMax) return;
  std::vector<uint8_t> own;
  if (dice_.Chance(0.5)) own.assign(OneSidedRegion::kBytes, 0);
  absl::StatusOr<SharedMemory> memory =
      own.empty() ? server.Share(OneSidedRegion::kBytes) : server.Share(absl::MakeSpan(own));
  if (!memory.ok()) {
    if (must || !absl::IsResourceExhausted(memory.status())) {
      world_.Broken(absl::StrCat("no shared memory: ", memory.status().ToString()));
    }
    return;
  }
  world_.Note(World::kServer, absl::StrCat("shares memory ", regions_.size() + 1));
  regions_.emplace_back(regions_.size() + 1, life_, std::move(own), *std::move(memory));
}

void OneSidedOwner::Write() {
  const std::vector<OneSidedRegion*> all = Regions();
  if (all.empty()) return;
  const auto from = static_cast<size_t>(dice_.Between(OneSidedRegion::kDataFrom, OneSidedRegion::kBytes - 1));
  const auto count = static_cast<size_t>(
      dice_.Between(1, std::min<int64_t>(600, static_cast<int64_t>(OneSidedRegion::kBytes - from))));
  std::vector<uint8_t> bytes(count);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(dice_.Next() >> 32);
  all[static_cast<size_t>(dice_.Between(0, static_cast<int64_t>(all.size()) - 1))]->OwnerWrites(from, bytes);
}

void OneSidedOwner::Revoke(OneSidedRegion& region) {
  if (dice_.Chance(0.3)) {
    wait_([&] { Destroy(region); });
    return;
  }
  world_.Note(World::kServer, absl::StrCat("revokes memory ", region.id()));
  region.refused = true;
  const int64_t begun_ns = world_.now_ns();
  wait_([&] {
    if (const absl::Status revoked = region.memory()->Revoke(); !revoked.ok()) {
      world_.Broken(revoked.ToString());
    }
  });
  region.unreachable = true;
  world_.Note(World::kServer, absl::StrCat("has revoked memory ", region.id()));
  if (world_.now_ns() > std::max(begun_ns, world_.excused_until_ns(World::kServer)) + kRevocationNs) {
    world_.Broken(absl::StrCat("a revocation took ", world_.now_ns() - begun_ns, " ns"));
  }
}

// For memory of the program's own the destructor waits.
void OneSidedOwner::Destroy(OneSidedRegion& region) {
  world_.Note(World::kServer, absl::StrCat("destroys memory ", region.id()));
  region.refused = true;
  region.memory().reset();
  if (region.is_own()) region.unreachable = true;
}

void OneSidedOwner::DestroyAll() {
  for (OneSidedRegion& region : regions_) {
    if (region.memory().has_value()) Destroy(region);
  }
}

absl::Status OneSidedOwner::Serve(ServerContext& context, ledger::Ledger::GrantParams::Reader request,
                                  ledger::Ledger::GrantResults::Builder reply) {
  OneSidedRegion& region = regions_[request.getMemory() - 1];
  if (!region.memory().has_value()) return absl::FailedPreconditionError("it was destroyed");
  const uint64_t offset = request.getOffset(), length = request.getLength();
  const absl::Status granted = context.Grant(*region.memory(),
                                             {.offset = offset,
                                              .length = length,
                                              .access = static_cast<hawser::Access>(request.getAccess()),
                                              .counter = request.getCounted() ? &region.counter() : nullptr},
                                             reply.initTicket());
  const bool exists = offset + length <= OneSidedRegion::kBytes;
  // Memory of an earlier life of the server is none that this one can grant.
  if (granted.ok() && (!exists || region.unreachable || region.server_life() != life_)) {
    world_.Broken(
        absl::StrCat("memory ", region.id(), " is granted, and cannot be: ", length, " bytes at ", offset));
  }
  return granted;
}

void OneSidedOwner::OnServerEnding() {
  for (OneSidedRegion& region : regions_) {
    if (region.memory().has_value() && dice_.Chance(0.3)) Destroy(region);
  }
}

void OneSidedOwner::OnServerEnded() {
  for (OneSidedRegion& region : regions_) {
    region.refused = region.unreachable = true;
    if (region.memory().has_value() && dice_.Chance(0.5)) Destroy(region);
  }
}

void OneSidedOwner::CheckTurn() {
  for (OneSidedRegion& region : regions_) {
    const std::string broken = region.CheckCount();
    if (!broken.empty()) world_.Broken(broken);
  }
}

void OneSidedOwner::CheckEnd() {
  for (const OneSidedRegion& region : regions_) {
    const std::string broken = region.CheckContent();
    if (!broken.empty()) world_.Broken(broken);
  }
  Dismantle();
}

void OneSidedOwner::Dismantle() {
  for (OneSidedRegion& region : regions_) region.memory().reset();
}

}  // namespace hawser::sim
