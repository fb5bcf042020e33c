#ifndef HAWSER_RPC_METADATA_H_
#define HAWSER_RPC_METADATA_H_

// Pairs that go along with a call, and with its answer:
//
//   const hawser::Metadata metadata = {{"tenant", tenant}};
//   auto call = pages.Read({.metadata = &metadata});
//   call.request().setNumber(7);
//   auto reply = call.Send().Wait();
//   const std::string retry_after = hawser::MetadataOf(reply.status()).Get("retry-after").value_or("");

#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/attributes.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace hawser {

// Key-value pairs beside what a schema has, such as a tenant or a trace: of a call (CallOptions::metadata,
// ServerContext::metadata()) and of its answer (ServerContext::reply_metadata(), Reply::metadata(),
// MetadataOf()). They are what the peer says: a tenant in them proves nothing.
//
// A key is 1 to kMetadataKeyMax of a to z, 0 to 9, '-', '_' and '.'; a value is any bytes. Keys may repeat,
// and the order stays. There are at most kMetadataPairsMax pairs, of kMetadataBytesMax bytes in all, each
// counted with 4 bytes more. They are part of the message: they count as one of its segments, towards
// ConnectionOptions::message_bytes_max, and towards what is sent without a further round trip.
inline constexpr size_t kMetadataKeyMax = 64;
inline constexpr size_t kMetadataPairsMax = 64;
inline constexpr size_t kMetadataBytesMax = 8192;

// Pairs in the memory of another object: of a Metadata, or of a message.
// Thread: any.
class MetadataView {
 public:
  struct Pair {
    absl::string_view key;
    absl::string_view value;
  };

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Pair;
    using difference_type = ptrdiff_t;
    using pointer = const Pair*;
    using reference = const Pair&;

    reference operator*() const { return pair_; }
    pointer operator->() const { return &pair_; }
    Iterator& operator++() { return *this = Iterator(rest_.substr(pair_bytes_)); }
    Iterator operator++(int) {
      const Iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const Iterator& other) const { return rest_.size() == other.rest_.size(); }
    bool operator!=(const Iterator& other) const { return !(*this == other); }

   private:
    friend class MetadataView;
    explicit Iterator(absl::string_view rest);

    absl::string_view rest_;  // This pair and those behind it; empty: the end.
    size_t pair_bytes_ = 0;
    Pair pair_;
  };

  MetadataView() = default;

  // Reads what crosses the wire (rpc/PROTOCOL.md), with or without the zeros that fill up its last word.
  // InvalidArgument: it is malformed, or beyond a bound; the text quotes nothing of it.
  static absl::StatusOr<MetadataView> Parse(absl::string_view bytes);
  // What crosses the wire.
  absl::string_view bytes() const { return bytes_; }

  Iterator begin() const { return Iterator(bytes_); }
  Iterator end() const { return Iterator({}); }
  bool empty() const { return bytes_.empty(); }

  // The value of the first pair with this key.
  std::optional<absl::string_view> Get(absl::string_view key) const;

 private:
  friend class Metadata;
  explicit MetadataView(absl::string_view bytes) : bytes_(bytes) {}

  absl::string_view bytes_;  // Whole pairs.
};

// Pairs to send, or to keep.
// Thread: one at a time; while no thread changes it, any may read it and send it.
class Metadata {
 public:
  Metadata() = default;
  Metadata(std::initializer_list<MetadataView::Pair> pairs);
  explicit Metadata(MetadataView view) : bytes_(view.bytes_) {}
  Metadata(const Metadata&) = default;
  Metadata& operator=(const Metadata&) = default;
  // What was moved from is empty.
  Metadata(Metadata&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})), status_(std::exchange(other.status_, absl::OkStatus())) {}
  Metadata& operator=(Metadata&& other) noexcept {
    bytes_ = std::exchange(other.bytes_, {});
    status_ = std::exchange(other.status_, absl::OkStatus());
    return *this;
  }

  // A pair that breaks a rule above is not added. Then status() says which rule, and the call or reply that
  // this is sent with fails with that. An error is sent without it.
  Metadata& Add(absl::string_view key, absl::string_view value);
  // OK or InvalidArgument. The text quotes no value.
  const absl::Status& status() const { return status_; }

  bool empty() const { return bytes_.empty(); }
  // Valid until the next Add().
  MetadataView view() const& ABSL_ATTRIBUTE_LIFETIME_BOUND { return MetadataView(bytes_); }
  MetadataView view() const&& = delete;
  MetadataView::Iterator begin() const& { return view().begin(); }
  MetadataView::Iterator end() const& { return view().end(); }
  std::optional<absl::string_view> Get(absl::string_view key) const& ABSL_ATTRIBUTE_LIFETIME_BOUND {
    return view().Get(key);
  }
  // A temporary gives a copy: MetadataOf(status).Get("retry-after").
  std::optional<std::string> Get(absl::string_view key) const&&;

 private:
  std::string bytes_;  // As in a view.
  absl::Status status_;
};

// What a handler sent with the error that a call ended with; empty: nothing, or the error is not a handler's.
// An error that is sent while the server has no memory is sent without. It is a detail (a payload) of the
// status, which absl::Status::ToString() and << print: log message() instead if the log must not have it.
Metadata MetadataOf(const absl::Status& status);

}  // namespace hawser

#endif  // HAWSER_RPC_METADATA_H_
