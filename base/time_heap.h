#ifndef HAWSER_BASE_TIME_HEAP_H_
#define HAWSER_BASE_TIME_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hawser {

// The earliest of many objects: a binary heap whose objects know their places, so that any of them is taken
// out in O(log n). Once the heap has grown, nothing is allocated. `when` and `position` are members of T; the
// second is the heap's.
// Lifetime: each object outlives its stay.
template <typename T, int64_t T::*when, size_t T::*position>
class TimeHeap {
 public:
  bool empty() const { return items_.empty(); }
  size_t size() const { return items_.size(); }
  // Not of an empty one.
  T* first() const { return items_.front(); }

  void Add(T& item) {
    items_.push_back(&item);
    item.*position = items_.size() - 1;
    Up(item.*position);
  }

  void Remove(T& item) {
    T* const last = items_.back();
    items_.pop_back();
    if (last == &item) return;
    Place(item.*position, last);
    Moved(*last);
  }

  // The time of `item`, which is in the heap, has changed.
  void Moved(T& item) {
    Up(item.*position);
    Down(item.*position);
  }

 private:
  void Place(size_t at, T* item) {
    items_[at] = item;
    item->*position = at;
  }

  void Up(size_t at) {
    T* const item = items_[at];
    while (at > 0) {
      const size_t parent = (at - 1) / 2;
      if (items_[parent]->*when <= item->*when) break;
      Place(at, items_[parent]);
      at = parent;
    }
    Place(at, item);
  }

  void Down(size_t at) {
    T* const item = items_[at];
    while (true) {
      size_t child = 2 * at + 1;
      if (child >= items_.size()) break;
      if (child + 1 < items_.size() && items_[child + 1]->*when < items_[child]->*when) ++child;
      if (items_[child]->*when >= item->*when) break;
      Place(at, items_[child]);
      at = child;
    }
    Place(at, item);
  }

  std::vector<T*> items_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_TIME_HEAP_H_
