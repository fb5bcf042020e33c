#ifndef HAWSER_TESTS_TRANSPORT_TESTING_HOSTILE_PEER_H_
#define HAWSER_TESTS_TRANSPORT_TESTING_HOSTILE_PEER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "hawser/tests/transport/testing/raw_message.h"
#include "hawser/tests/transport/testing/world.h"
#include "hawser/transport/fabric/fabric.h"
#include "hawser/transport/wire/handshake.h"
#include "hawser/transport/wire/wire.h"

namespace hawser::transport {

// A peer that sends whatever a test wants: a queue pair of a fabric, without transport/ above it. The
// turns of its World drive it.
class HostilePeer final : fabric::ConnectionHandler, fabric::ListenHandler {
 public:
  // `fabric`: null: a test fabric.
  explicit HostilePeer(World& world, uint32_t read_depth = 16,
                       std::shared_ptr<fabric::Fabric> fabric = nullptr);
  ~HostilePeer();

  // The handshake of an honest peer.
  static Handshake Hello(Role role = Role::kForward);

  // Dials the other side.
  void Dial(const SocketAddress& address, absl::string_view private_data);
  // Listens, and accepts the first connection with `private_data`; nullopt: does not accept it.
  SocketAddress Listen(std::optional<std::string> private_data);
  void Accept(absl::string_view private_data);

  // Sends each message from a buffer of its own. `ends_rkey`: a grant of the other side's that it ends (see
  // fabric::SendWorkRequest), if that is one; 0: none.
  void Send(absl::string_view message, uint32_t ends_rkey = 0);
  // Lets the other side READ this many bytes of this one's memory. Returns the entry of an honest table for
  // it.
  TableEntry Grant(uint32_t size_bytes);
  // Pushes (fabric::Opcode::kPush) the first bytes of readable(), with the length, address and rkey of
  // `entry`.
  void Push(const TableEntry& entry) { Post(fabric::Opcode::kPush, entry); }
  // READs what the other side has granted by `entry`, at most 16 MiB, into readable().
  void Read(const TableEntry& entry) { Post(fabric::Opcode::kRead, entry); }
  // READs that have completed.
  size_t reads() const { return reads_; }
  bool can_push() const { return queue_pair_->push_bytes_max() != 0; }
  uint8_t* readable();
  void Disconnect();
  // Posts no more receives from now on.
  void StopReceiving() { receiving_ = false; }

  bool established() const { return established_; }
  bool ended() const { return ended_; }
  const absl::Status& why() const { return why_; }
  const std::string& private_data() const { return private_data_; }
  const std::vector<std::string>& received() const { return received_; }
  bool has_request() const { return request_ != nullptr; }
  std::string address() const { return queue_pair_->local_address().ToString(); }
  uint8_t* memory() { return memory_; }

 private:
  size_t Turn();
  void Post(fabric::Opcode opcode, const TableEntry& entry);
  void PostReceives();
  void OnEstablished(absl::string_view private_data) override;
  void OnConnectFailed(const absl::Status& why, absl::string_view private_data) override;
  void OnDisconnected(const absl::Status& why) override;
  void OnConnectRequest(std::unique_ptr<fabric::ConnectRequest> request) override;

  World& world_;
  const std::shared_ptr<fabric::Fabric> fabric_;
  uint8_t* memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::unique_ptr<fabric::CompletionQueue> completion_queue_;
  std::unique_ptr<fabric::QueuePair> queue_pair_;
  std::unique_ptr<fabric::Listener> listener_;
  std::unique_ptr<fabric::ConnectRequest> request_;
  std::optional<std::string> answer_;
  bool receiving_ = true;
  bool established_ = false;
  bool ended_ = false;
  absl::Status why_;
  std::string private_data_;
  std::vector<std::string> received_;
  size_t sends_ = 0;
  size_t reads_ = 0;
};

}  // namespace hawser::transport

#endif  // HAWSER_TESTS_TRANSPORT_TESTING_HOSTILE_PEER_H_
