#ifndef HAWSER_MEASURE_VERBS_RAW_PLAN_H_
#define HAWSER_MEASURE_VERBS_RAW_PLAN_H_

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

// The floor of what Hawser does over a NIC: what the same bytes cost over a queue pair with nothing in
// between. Here is what its two ends agree on; raw_server.h and raw_client.h are the ends.
namespace hawser::transport {

// What the two ends do until the client disconnects. The client says it when it connects. A value.
struct RawPlan {
  enum class Kind : uint32_t {
    kExchange =
        1,  // The client SENDs requests, and the server answers each with a SEND (ib_send_lat, ib_send_bw).
    kClientReads = 2,      // The client READs memory of the server, the same again and again (ib_read_bw).
    kServerReads = 3,      // The server does this with memory of the client.
    kClientWrites = 4,     // The client WRITEs memory of the server (ib_write_bw).
    kClientFetchAdds = 5,  // The client adds to 8 bytes of the server (ib_atomic_bw).
  };

  Kind kind = Kind::kExchange;
  uint32_t depth = 1;         // Requests, or one-sided operations, in flight; at most kDepthMax.
  uint64_t bytes = 1;         // A request, or an operation: at most kBytesMax; a fetch-and-add has 8.
  uint64_t answer_bytes = 1;  // An answer, if there are answers; likewise.

  static constexpr uint32_t kDepthMax = 256;
  // rxe says that it takes no longer messages (ibv_port_attr::max_msg_sz). Real NICs take 1 GiB at least.
  static constexpr uint64_t kBytesMax = 8 << 20;
  // All that is in flight: `depth` times the larger of `bytes` and `answer_bytes`.
  static constexpr uint64_t kInFlightBytesMax = 16 << 20;

  // InvalidArgument, with a text that fits the private data of a rejection.
  absl::Status Check() const;
  // The greatest depth, at most `wanted`, that kInFlightBytesMax allows for messages of `bytes`.
  static uint32_t DepthFor(uint64_t bytes, uint32_t wanted);
};

// Shows that the client is the one for which the server has opened the port.
using RawToken = std::array<uint8_t, 16>;

// The private data of the request to connect. All integers are little-endian.
std::string EncodeRawGreeting(const RawToken& token, const RawPlan& plan);
// `private_data` may be padded. Empty: it is too short, or has another token; how long this takes does not
// say where the token differs. The plan is not checked.
std::optional<RawPlan> DecodeRawGreeting(absl::string_view private_data, const RawToken& token);

// The longest run of READs that a client can ask for.
inline constexpr absl::Duration kRawReadsTimeMax = absl::Minutes(1);

// Where there are one-sided operations, the client SENDs this: for each run of READs of the server's, or once
// for the memory that it reaches itself,
struct RawCommand {
  uint64_t address = 0;  // kServerReads: what to READ.
  uint32_t rkey = 0;     // Likewise.
  uint32_t reserved = 0;
  int64_t reads_max = 0;  // kServerReads: the run ends after so many,
  int64_t time_ns = 0;    // or after this time, kRawReadsTimeMax at most.
};
// and the server answers with this.
struct RawReport {
  uint64_t address = 0;  // Operations of the client: where.
  uint32_t rkey = 0;     // Likewise.
  uint32_t reserved = 0;
  int64_t reads = 0;  // kServerReads: how many there were.
};

// No padding: it would cross.
static_assert(std::has_unique_object_representations_v<RawCommand> && sizeof(RawCommand) == 32);
static_assert(std::has_unique_object_representations_v<RawReport> && sizeof(RawReport) == 24);
static_assert(std::endian::native == std::endian::little, "they are copied to the wire as they are");

}  // namespace hawser::transport

#endif  // HAWSER_MEASURE_VERBS_RAW_PLAN_H_
