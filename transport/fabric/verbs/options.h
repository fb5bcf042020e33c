#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_OPTIONS_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace hawser::fabric {

struct VerbsLibrary;

// What gives a peer access to memory that it is granted to READ. (To WRITE, it is a window or a
// registration.)
enum class GrantKind : uint8_t {
  // A memory window of type 2B, bound for each grant: exactly the range, for this peer, until it is revoked.
  kWindows,
  // A registration of each range: exactly the range, until it is revoked, for each peer of the process that
  // knows the key.
  kRegistered,
  // The key of the region, which lasts as long as the region. A grant does nothing, and so does its
  // revocation, which completes at once and takes nothing from anyone: each peer of the process that knows
  // the key may READ the whole region at any time. Every grant has the key.
  kShared,
};

struct VerbsFabricOptions {
  // As `ibv_devices` names it, "mlx5_0". Empty: what the environment variable HAWSER_RDMA_DEVICE names, else
  // the first device with an active port that makes reliable connections (efa, usnic and some of mana do
  // not).
  std::string device;

  // Retries, 0 to 6. A SEND that finds no posted receive is retried after about 1 ms, an unacknowledged
  // packet after `ack_timeout`. 7 would mean for ever: always for RNR, with some drivers for both.
  uint8_t rnr_retry_count = 6;
  uint8_t retry_count = 6;

  // 4.096 us * 2^n until an unacknowledged packet is sent again: 67 ms, so that a host that died is known
  // within half a second to two (a NIC may take four times as long as it is set to). The connection manager's
  // own value is 19: 2 s.
  uint8_t ack_timeout = 14;

  // RDMA_OPTION_ID_TOS of each connection that this side dials: see RuntimeOptions::rdma_traffic_class.
  // Empty: the connection manager's default. If it cannot be set, connecting fails.
  std::optional<uint8_t> traffic_class;

  // Sends of at most this many bytes are copied into the send queue, which spares the NIC another transfer
  // over the bus. The device may grant less.
  uint32_t inline_bytes = 192;

  int listen_backlog = 1024;

  // Empty: windows where the device has those of type 2B and is none of iWARP, else registrations. But
  // registrations on rxe (Linux 6.1): on a link that loses or reorders, its queue pairs stand still for good,
  // without a word, once windows are bound on them; nor does it look at a window's bounds. kWindows fails on
  // a device without windows.
  std::optional<GrantKind> grants;

  // Over iWARP: what is READ into is registered for that time, so that the device may write there. False: it
  // is used as it is, which siw can do and NICs cannot. See VerbsSinks.
  bool sink_registrations = true;

  // The device may write what it receives or READs in any order (IBV_ACCESS_RELAXED_ORDERING), where the
  // kernel and the device know this: on many hosts only so does a NIC of 100 Gbit/s and more reach its rate.
  // Safe, since nothing is read before the completion that follows it, which is written in order.
  bool relaxed_ordering = true;

  // Takes a line for the log of what a user should know although the fabric works: that the device's windows
  // could not be tried. Once for each device, by NewVerbsFabric(). Empty: it is dropped.
  std::function<void(absl::string_view line)> warn;

  // Null: the machine's libraries. A fake for tests must outlive the fabric.
  const VerbsLibrary* library = nullptr;
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_OPTIONS_H_
