#ifndef HAWSER_RPC_KEPT_H_
#define HAWSER_RPC_KEPT_H_

// What a handler keeps of a request, after its call. `journal_` is a std::vector of Kept<Pages::WriteParams>:
//
//   absl::Status Write(hawser::ServerContext& context, Pages::WriteParams::Reader request,
//                      Pages::WriteResults::Builder) override {
//     hawser::Kept<Pages::WriteParams> write = context.Keep(request);  // Or of any struct in it.
//     absl::MutexLock lock(&mutex_);
//     kept_bytes_ += write.memory_bytes;
//     last_number_ = write->getNumber();
//     journal_.push_back(std::move(write));
//     return absl::OkStatus();
//   }

#include <capnp/any.h>
#include <capnp/blob.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace hawser {

class ServerContext;

namespace internal {
// What Kept<T> has, of any T. No `owner`: there is nothing to keep.
struct KeptStruct {
  capnp::AnyStruct::Reader value;
  std::shared_ptr<const void> owner;
  uint64_t memory_bytes = 0;
};
}  // namespace internal

// What ServerContext::KeepBytes() keeps. A copy shares the memory. Moved from, it has no bytes.
struct KeptBytes {
  capnp::Data::Reader bytes;          // Valid while `owner` lives. Never written to.
  std::shared_ptr<const void> owner;  // Null: there are no bytes. May outlive the server.
  uint64_t memory_bytes = 0;          // That `owner` keeps: at most 1.25 times those of `bytes`, and 512.

  KeptBytes() = default;
  KeptBytes(const KeptBytes&) = default;
  KeptBytes(KeptBytes&& other) noexcept { *this = std::move(other); }
  KeptBytes& operator=(const KeptBytes&) = default;
  KeptBytes& operator=(KeptBytes&& other) noexcept {
    bytes = std::exchange(other.bytes, {});
    owner = std::exchange(other.owner, nullptr);
    memory_bytes = std::exchange(other.memory_bytes, 0);
    return *this;
  }
};

// What ServerContext::Keep() keeps: a struct of the schema, `kept->getName()`. A copy shares the memory.
// Moved from, and by default, it is a struct whose fields all have their defaults.
// Its getters throw kj::Exception, as those of the request do, if the client sent a value of another type for
// the field. In the handler that answers the call with an error; on another thread, uncaught, it ends the
// process. So read each field once in the handler before you keep the struct for later.
// Thread:   its Reader may be used on several at once.
template <typename T>
struct Kept {
  typename T::Reader value;           // Valid while `owner` lives. ReadLimits do not count what reads it.
  std::shared_ptr<const void> owner;  // Null: `value` takes no memory. May outlive the server.
  uint64_t memory_bytes = 0;          // That `owner` keeps: see ServerContext::Keep().

  Kept() = default;
  Kept(const Kept&) = default;
  Kept(Kept&& other) noexcept { *this = std::move(other); }
  Kept& operator=(const Kept&) = default;
  Kept& operator=(Kept&& other) noexcept {
    value = std::exchange(other.value, {});
    owner = std::exchange(other.owner, nullptr);
    memory_bytes = std::exchange(other.memory_bytes, 0);
    return *this;
  }

  const typename T::Reader* operator->() const { return &value; }
  const typename T::Reader& operator*() const { return value; }

 private:
  friend class ServerContext;
  explicit Kept(internal::KeptStruct kept)
      : value(kept.value.as<T>()), owner(std::move(kept.owner)), memory_bytes(kept.memory_bytes) {}
};

}  // namespace hawser

#endif  // HAWSER_RPC_KEPT_H_
