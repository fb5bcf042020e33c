#ifndef HAWSER_BASE_INTRUSIVE_LIST_H_
#define HAWSER_BASE_INTRUSIVE_LIST_H_

#include <cstddef>

namespace hawser {

// The place of an object in an IntrusiveList of the same `Tag`, a type that is only declared. An object that
// may be in several lists derives from one link for each. It leaves its list when it is destroyed.
template <typename Tag>
class ListLink {
 public:
  ListLink() = default;
  ~ListLink() { Unlink(); }
  ListLink(const ListLink&) = delete;
  ListLink& operator=(const ListLink&) = delete;

  bool linked() const { return next_ != nullptr; }
  // Without effect if it is in no list.
  void Unlink() {
    if (next_ == nullptr) return;
    next_->previous_ = previous_;
    previous_->next_ = next_;
    next_ = previous_ = nullptr;
  }

 private:
  template <typename T, typename U>
  friend class IntrusiveList;
  ListLink* next_ = nullptr;
  ListLink* previous_ = nullptr;
};

// A list of objects that bring their own links, so that entering and leaving it allocates nothing and takes
// constant time. It owns none of them. `T` derives from ListLink<Tag>.
// Thread:   one at a time.
template <typename T, typename Tag>
class IntrusiveList {
 public:
  IntrusiveList() { head_.next_ = head_.previous_ = &head_; }
  // Those that are still in it are in no list then.
  ~IntrusiveList() {
    while (!empty()) head_.next_->Unlink();
    head_.next_ = head_.previous_ = nullptr;
  }

  // Linear in the size.
  size_t size() const {
    size_t count = 0;
    for (const T* each = front(); each != nullptr; each = after(each)) ++count;
    return count;
  }
  bool empty() const { return head_.next_ == &head_; }
  T* front() const { return empty() ? nullptr : static_cast<T*>(head_.next_); }
  // The one behind `item`, which is in this list; null: `item` is the last.
  T* after(const T* item) const {
    const Link* const link = item;
    return link->next_ == &head_ ? nullptr : static_cast<T*>(link->next_);
  }

  // Puts `item` at the end. If it is in a list of this Tag already, it leaves its place there.
  void MoveToBack(T* item) {
    Link* const link = item;
    link->Unlink();
    link->next_ = &head_;
    link->previous_ = head_.previous_;
    head_.previous_->next_ = link;
    head_.previous_ = link;
  }

 private:
  using Link = ListLink<Tag>;
  Link head_;
};

}  // namespace hawser

#endif  // HAWSER_BASE_INTRUSIVE_LIST_H_
