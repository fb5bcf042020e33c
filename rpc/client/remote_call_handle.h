#ifndef HAWSER_RPC_CLIENT_REMOTE_CALL_HANDLE_H_
#define HAWSER_RPC_CLIENT_REMOTE_CALL_HANDLE_H_

#include <utility>

namespace hawser::internal {

class RemoteCall;

// A counted reference to the RemoteCall behind a RemoteOperation. Move-only; empty once moved from.
// Thread:   one at a time.
class RemoteCallHandle {
 public:
  RemoteCallHandle() = default;
  explicit RemoteCallHandle(RemoteCall* call) : call_(call) {}  // Takes over one reference.
  RemoteCallHandle(RemoteCallHandle&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  RemoteCallHandle& operator=(RemoteCallHandle&& other) noexcept {
    std::swap(call_, other.call_);
    return *this;
  }
  ~RemoteCallHandle() {
    if (call_ != nullptr) Release();
  }
  RemoteCallHandle Share() const;

  explicit operator bool() const { return call_ != nullptr; }
  RemoteCall* operator->() const { return call_; }
  RemoteCall& operator*() const { return *call_; }
  void Reset() {
    if (call_ != nullptr) Release();
  }
  // The reference is never given back.
  void Leak() { call_ = nullptr; }

 private:
  void Release();

  RemoteCall* call_ = nullptr;
};

}  // namespace hawser::internal

#endif  // HAWSER_RPC_CLIENT_REMOTE_CALL_HANDLE_H_
