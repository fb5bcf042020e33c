// How a simulated NIC accesses granted memory, with the freedom that a real one has: the bytes of a WRITE
// arrive in any order, and those of one WRITE between those of another; the words of a READ are of different
// times; an atomic reads and writes at different times, which only the processor can see.
#include <algorithm>
#include <cstring>
#include <utility>

#include "hawser/tests/sim/sim_queue_pair.h"
#include "hawser/tests/sim/sim_responder.h"

namespace hawser::sim {
namespace {

using fabric::CompletionStatus;
using fabric::Opcode;

constexpr size_t kWordBytes = sizeof(uint64_t);
constexpr size_t kPartsMax = 6;

// Cuts [0, length_bytes) at random places, which are multiples of `unit` behind `first`. Returns the ends.
std::vector<size_t> Cut(size_t length_bytes, size_t first, size_t unit, Dice& dice) {
  std::vector<size_t> ends = {length_bytes};
  if (length_bytes <= first) return ends;
  const size_t places = (length_bytes - first - 1) / unit;
  const size_t cuts = std::min(places + (first > 0 ? 1 : 0), kPartsMax - 1);
  for (size_t i = 0; i < cuts; ++i) {
    const size_t end = first + unit * static_cast<size_t>(dice.Between(0, static_cast<int64_t>(places)));
    if (end > 0) ends.push_back(end);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return ends;
}

}  // namespace

SimResponder::Answer* SimResponder::FindAnswer(uint64_t number) {
  const auto found = std::find_if(answers_.begin(), answers_.end(),
                                  [&](const Answer& answer) { return answer.packet.number == number; });
  return found == answers_.end() || !qp_.working() ? nullptr : &*found;
}

uint8_t* SimResponder::StillGranted(Answer& answer, Access access) {
  uint8_t* const memory = Resolve(answer.packet, access);
  if (memory != nullptr) return memory;
  answer.status = CompletionStatus::kRemoteAccessError;
  refusing_ = true;
  return nullptr;
}

void SimResponder::BeginWrite(SimPacket packet) {
  const std::vector<size_t> ends = Cut(packet.data.size(), 0, 1, qp_.dice());
  const uint64_t number = packet.number;
  answers_.push_back({std::move(packet), CompletionStatus::kSuccess, 0, static_cast<uint32_t>(ends.size())});
  landing_ += static_cast<uint32_t>(ends.size());
  size_t from = 0;
  for (const size_t end : ends) {
    Later(qp_.faults().spread.Throw(qp_.dice()),
          [number, from, count = end - from](SimResponder& self) { self.WritePart(number, from, count); });
    from = end;
  }
}

void SimResponder::WritePart(uint64_t number, size_t offset, size_t length_bytes) {
  Answer* const answer = FindAnswer(number);
  if (answer == nullptr) return;
  if (uint8_t* const memory = StillGranted(*answer, Access::kWrite); memory != nullptr) {
    qp_.network().memory_guard().FabricWrites(memory + offset, answer->packet.data.data() + offset,
                                              length_bytes, 0);
    qp_.network().NotePeerAccess(memory + offset, length_bytes, /*writes=*/true);
  }
  --answer->parts;
  --landing_;
  AnswerInOrder();
  ExecuteInbound();
}

void SimResponder::BeginReadInWords(Answer& answer, const uint8_t* memory) {
  const uint64_t number = answer.packet.number;
  const size_t first = -reinterpret_cast<uintptr_t>(memory) % kWordBytes;
  const std::vector<size_t> ends = Cut(answer.packet.length, first, kWordBytes, qp_.dice());
  answer.data.resize(answer.packet.length);
  answer.parts = static_cast<uint32_t>(ends.size());
  size_t from = 0;
  for (const size_t end : ends) {
    Later(qp_.faults().spread.Throw(qp_.dice()),
          [number, from, count = end - from](SimResponder& self) { self.ReadPart(number, from, count); });
    from = end;
  }
}

void SimResponder::ReadPart(uint64_t number, size_t offset, size_t length_bytes) {
  Answer* const answer = FindAnswer(number);
  if (answer == nullptr) return;
  if (const uint8_t* const memory = StillGranted(*answer, Access::kRead); memory != nullptr) {
    std::memcpy(answer->data.data() + offset, memory + offset, length_bytes);
    qp_.network().NotePeerAccess(memory + offset, length_bytes, /*writes=*/false);
  }
  --answer->parts;
  AnswerInOrder();
}

void SimResponder::BeginAtomic(SimPacket packet) {
  const uint64_t number = packet.number;
  answers_.push_back({std::move(packet), CompletionStatus::kSuccess, 0, 1});
  const bool with_processor = qp_.atomics() == fabric::Atomics::kWithProcessor;
  const int64_t duration_ns = with_processor ? 0 : qp_.faults().spread.Throw(qp_.dice());
  const int64_t start_ns = qp_.network().TakeAtomicUnit(qp_.host(), duration_ns);
  Later(start_ns - qp_.now_ns(),
        [number, duration_ns](SimResponder& self) { self.ReadWord(number, duration_ns); });
}

void SimResponder::ReadWord(uint64_t number, int64_t duration_ns) {
  Answer* const answer = FindAnswer(number);
  if (answer == nullptr) return;
  const uint8_t* const memory = StillGranted(*answer, Access::kAtomic);
  if (memory == nullptr) {
    answer->parts = 0;
    return AnswerInOrder();
  }
  answer->data.assign(memory, memory + kWordBytes);
  qp_.network().NotePeerAccess(memory, kWordBytes, /*writes=*/false);
  if (duration_ns == 0) return WriteWord(number);
  Later(duration_ns, [number](SimResponder& self) { self.WriteWord(number); });
}

void SimResponder::WriteWord(uint64_t number) {
  Answer* const answer = FindAnswer(number);
  if (answer == nullptr) return;
  const SimPacket& packet = answer->packet;
  uint64_t word;
  std::memcpy(&word, answer->data.data(), kWordBytes);
  const bool swaps = packet.opcode == Opcode::kCompareSwap;
  const uint64_t after = swaps ? packet.swap : word + packet.compare_add;
  if (uint8_t* const memory = StillGranted(*answer, Access::kAtomic);
      memory != nullptr && (!swaps || word == packet.compare_add)) {
    qp_.network().memory_guard().FabricWrites(memory, reinterpret_cast<const uint8_t*>(&after), kWordBytes,
                                              0);
    qp_.network().NotePeerAccess(memory, kWordBytes, /*writes=*/true);
  }
  answer->parts = 0;
  AnswerInOrder();
}

}  // namespace hawser::sim
