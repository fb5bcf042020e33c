#ifndef HAWSER_TRANSPORT_CONNECTION_SLOT_TABLE_H_
#define HAWSER_TRANSPORT_CONNECTION_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace hawser::transport {

// The slots of one side of a connection, by number. A slot is made when it is first used, since most
// connections need few. It then keeps its address and its generation as long as the connection.
template <typename Slot>  // Has a `number`, which this sets.
class SlotTable {
 public:
  explicit SlotTable(uint32_t size) : slots_(size) {}

  size_t size() const { return slots_.size(); }
  // Null: there is no such slot, or it was never used.
  Slot* Find(size_t number) const { return number < slots_.size() ? slots_[number].get() : nullptr; }
  // `number` is less than size().
  Slot& At(uint16_t number) {
    std::unique_ptr<Slot>& slot = slots_[number];
    if (slot == nullptr) {
      slot = std::make_unique<Slot>();
      slot->number = number;
    }
    return *slot;
  }

  // Those that were used, in their order: for (Slot& slot : table).
  class Iterator {
   public:
    Iterator(const std::unique_ptr<Slot>* at, const std::unique_ptr<Slot>* end) : at_(at), end_(end) {
      Skip();
    }
    Slot& operator*() const { return **at_; }
    Iterator& operator++() {
      ++at_;
      Skip();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    void Skip() {
      while (at_ != end_ && *at_ == nullptr) ++at_;
    }

    const std::unique_ptr<Slot>* at_;
    const std::unique_ptr<Slot>* end_;
  };
  Iterator begin() const { return {slots_.data(), slots_.data() + slots_.size()}; }
  Iterator end() const { return {slots_.data() + slots_.size(), slots_.data() + slots_.size()}; }

 private:
  std::vector<std::unique_ptr<Slot>> slots_;  // Null: never used.
};

}  // namespace hawser::transport

#endif  // HAWSER_TRANSPORT_CONNECTION_SLOT_TABLE_H_
