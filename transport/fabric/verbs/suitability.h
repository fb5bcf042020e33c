#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_SUITABILITY_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_SUITABILITY_H_

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Which RDMA devices Hawser can use, and what it makes of their limits. For VerbsDevice, and for the doctor,
// which tells what VerbsDevice will do.
// Thread:   any.
namespace hawser::fabric {

// InfiniBand (RoCE, too) or iWARP. librdmacm lists devices of other transports as well (efa, usnic). The
// kernel's connection manager does not know them, so listening on [::] would succeed, on no device, and
// connecting would fail as if there were no route.
inline bool HasReliableTransport(const ibv_device& device) {
  return device.transport_type == IBV_TRANSPORT_IB || device.transport_type == IBV_TRANSPORT_IWARP;
}

// What to say of another device.
inline constexpr absl::string_view kNoReliableTransport =
    "has no reliable connections (its transport is neither InfiniBand nor iWARP; so it is with efa of AWS), "
    "which Hawser needs";

// What Hawser cannot do without: places in queue pairs and completion queues, and READs in both directions,
// by which large messages are fetched. 0 READs means none on iWARP, too: every driver fills in both
// attributes (siw_query_device(), irdma_query_device(), erdma_query_device(), c4iw_query_device(),
// qedr_query_device()). That differs from the events of iWARP devices, see AgreedReadDepth().
// FailedPrecondition: the text names the attribute and its value.
absl::Status CheckAttributes(const ibv_device_attr& attr);

// READs into a queue pair and from it, 1 to 254: rdma_conn_param has one byte for each of the two. After
// CheckAttributes().
uint32_t ReadDepthMax(const ibv_device_attr& attr);

// As Fabric::sge_max(). The attribute is the smaller one of the sges of a send and those of a receive (the
// kernel's copy_query_dev_fields()), so erdma, which has 6 and 1, has one here. No call tells them apart.
size_t SgeMax(const ibv_device_attr& attr);

// The inline bytes to ask of a device, in order, until it makes the queue pair: `wanted`, less, 0. One that
// cannot do that many returns EINVAL, and does not report its limit. What they can: irdma (X722) 48; erdma
// and bnxt_re 96; irdma (E810) 101; most others more than 128.
std::vector<uint32_t> InlineSteps(uint32_t wanted);

// Whether SENDs are posted inline (QueuePair::PostInline()): whether the provider copies what is sent with
// IBV_SEND_INLINE before ibv_post_send() returns, as the flag demands. mana's (vendor Microsoft) grants
// inline bytes and ignores the flag: wr.c does not look at it. Then the NIC reads the memory later, by its
// lkey. Nor over iWARP, where each SEND has a completion in any case, and where a READ that had to wait for
// copied SENDs would have its memory registered for the peer meanwhile.
inline bool PostsInline(const ibv_device_attr& attr, bool iwarp) {
  return !iwarp && attr.vendor_id != 0x1414;
}

// The functions of libibverbs that a trial calls.
struct QueuePairTrialCalls {
  decltype(&::ibv_create_cq) create_cq = nullptr;
  decltype(&::ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&::ibv_create_qp) create_qp = nullptr;
  decltype(&::ibv_destroy_qp) destroy_qp = nullptr;
};

// Makes one reliable queue pair with `sges` entries for sends, and `inline_bytes` or less, and destroys it.
// Returns the inline bytes that it has. Not every device with a transport that HasReliableTransport() makes
// one: mana says InfiniBand, but on a kernel or hardware without RC it makes raw ones only. `pd` is a
// protection domain of `context`.
// Failure:  Unavailable: the text names the call and its errno. That may be a lack that passes.
absl::StatusOr<uint32_t> TryQueuePair(ibv_context& context, ibv_pd& pd, const QueuePairTrialCalls& calls,
                                      size_t sges, uint32_t inline_bytes);

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_SUITABILITY_H_
