#ifndef HAWSER_TRANSPORT_FABRIC_VERBS_LIBRARY_H_
#define HAWSER_TRANSPORT_FABRIC_VERBS_LIBRARY_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "absl/status/statusor.h"

// The header also defines macros of these names, which would replace the table's members.
#undef ibv_reg_mr
#undef ibv_query_port

// The functions that Hawser calls, by their names. The inline functions of verbs.h (ibv_post_send,
// ibv_poll_cq, ...) go through ibv_context::ops, so they need no entry.
#define HAWSER_IBVERBS_FUNCTIONS(X) \
  X(ibv_fork_init)                  \
  X(ibv_open_device)                \
  X(ibv_close_device)               \
  X(ibv_query_device)               \
  X(ibv_query_port)                 \
  X(ibv_alloc_pd)                   \
  X(ibv_dealloc_pd)                 \
  X(ibv_reg_mr)                     \
  X(ibv_dereg_mr)                   \
  X(ibv_create_comp_channel)        \
  X(ibv_destroy_comp_channel)       \
  X(ibv_create_cq)                  \
  X(ibv_destroy_cq)                 \
  X(ibv_get_cq_event)               \
  X(ibv_ack_cq_events)              \
  X(ibv_get_async_event)            \
  X(ibv_ack_async_event)            \
  X(ibv_create_qp)                  \
  X(ibv_modify_qp)                  \
  X(ibv_destroy_qp)

#define HAWSER_RDMACM_FUNCTIONS(X) \
  X(rdma_get_devices)              \
  X(rdma_free_devices)             \
  X(rdma_create_event_channel)     \
  X(rdma_destroy_event_channel)    \
  X(rdma_get_cm_event)             \
  X(rdma_ack_cm_event)             \
  X(rdma_create_id)                \
  X(rdma_destroy_id)               \
  X(rdma_migrate_id)               \
  X(rdma_set_option)               \
  X(rdma_bind_addr)                \
  X(rdma_listen)                   \
  X(rdma_resolve_addr)             \
  X(rdma_resolve_route)            \
  X(rdma_init_qp_attr)             \
  X(rdma_connect)                  \
  X(rdma_establish)                \
  X(rdma_accept)                   \
  X(rdma_reject)                   \
  X(rdma_notify)                   \
  X(rdma_disconnect)

// Null if the libraries are older than rdma-core 31.
#define HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(X) \
  X(ibv_query_ece)                           \
  X(ibv_set_ece)

#define HAWSER_RDMACM_OPTIONAL_FUNCTIONS(X) \
  X(rdma_set_local_ece)                     \
  X(rdma_get_remote_ece)

namespace hawser::fabric {

class VerbsExecutor;

// ibv_reg_mr() as the macro of verbs.h is: access of IBV_ACCESS_OPTIONAL_RANGE goes to `extended`,
// ibv_reg_mr_iova2(), which drops it where the kernel is too old for it. Null: the library is older than
// rdma-core 28, and it is dropped here.
ibv_mr* RegisterWithOptionalAccess(decltype(&::ibv_reg_mr) plain, decltype(&::ibv_reg_mr_iova2) extended,
                                   ibv_pd* pd, void* address, size_t length_bytes, int access);

// libibverbs and librdmacm as a table of functions: opened at run time, so that one binary runs with and
// without RDMA, and replaceable, so that a test can stand in for a NIC. ibv_reg_mr() takes optional access,
// see above.
struct VerbsLibrary {
#define HAWSER_DECLARE(name) decltype(&::name) name = nullptr;
  HAWSER_IBVERBS_FUNCTIONS(HAWSER_DECLARE)
  HAWSER_RDMACM_FUNCTIONS(HAWSER_DECLARE)
  HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(HAWSER_DECLARE)
  HAWSER_RDMACM_OPTIONAL_FUNCTIONS(HAWSER_DECLARE)
#undef HAWSER_DECLARE

  // Null: the library is older than rdma-core 34, whose header declares this one.
  ibv_mr* (*ibv_reg_dmabuf_mr)(ibv_pd* pd, uint64_t offset, size_t length_bytes, uint64_t iova, int fd,
                               int access) = nullptr;
  // What the device can do with memory that is registered on demand, as ibv_query_device_ex() says it, which
  // is an inline function of verbs.h. Returns 0 or an errno, EOPNOTSUPP if the provider cannot say. Null: as
  // that.
  int (*query_on_demand)(ibv_context* context, ibv_odp_caps* caps) = nullptr;

  // The folder in which /sys and /dev are looked for when a device is not listed; a test makes up others.
  const char* root = "";

  // Null: each device has a control thread. A test's own carries out the commands when the test says so.
  VerbsExecutor* executor = nullptr;

  // Opens them, once in a process; they stay open. Thread: any. NotFound: names the library that could not be
  // opened, and its package.
  static absl::StatusOr<const VerbsLibrary*> Load();

  // The same with other names, for tests.
  static absl::StatusOr<VerbsLibrary> LoadFrom(const char* ibverbs, const char* rdmacm);
};

}  // namespace hawser::fabric

#endif  // HAWSER_TRANSPORT_FABRIC_VERBS_LIBRARY_H_
