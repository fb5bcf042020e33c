#include "hawser/transport/fabric/verbs/library.h"

#include <dlfcn.h>

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace hawser::fabric {
namespace {

absl::Status NotThere(const char* library) {
  const char* why = dlerror();
  return absl::NotFoundError(absl::StrCat("open the RDMA libraries: dlopen(", library,
                                          "): ", why != nullptr ? why : "unknown error",
                                          ": install rdma-core (Debian: libibverbs1, librdmacm1 and "
                                          "ibverbs-providers), or use tcp://"));
}

// ibv_query_device_ex() of verbs.h without its way out for old providers, which calls ibv_query_device() by
// its name.
int QueryOnDemand(ibv_context* context, ibv_odp_caps* caps) {
  verbs_context* const extended = verbs_get_ctx_op(context, query_device_ex);
  if (extended == nullptr) return EOPNOTSUPP;
  ibv_device_attr_ex attr = {};
  const int error = extended->query_device_ex(context, nullptr, &attr, sizeof(attr));
  if (error == 0) *caps = attr.odp_caps;
  return error;
}

// Functions of the library that was loaded last: a table has functions, no state.
decltype(&::ibv_reg_mr) plain_reg_mr = nullptr;
decltype(&::ibv_reg_mr_iova2) extended_reg_mr = nullptr;

}  // namespace

ibv_mr* RegisterWithOptionalAccess(decltype(&::ibv_reg_mr) plain, decltype(&::ibv_reg_mr_iova2) extended,
                                   ibv_pd* pd, void* address, size_t length_bytes, int access) {
  if ((access & IBV_ACCESS_OPTIONAL_RANGE) == 0) return plain(pd, address, length_bytes, access);
  if (extended == nullptr) return plain(pd, address, length_bytes, access & ~int{IBV_ACCESS_OPTIONAL_RANGE});
  return extended(pd, address, length_bytes, reinterpret_cast<uintptr_t>(address),
                  static_cast<unsigned int>(access));
}

absl::StatusOr<VerbsLibrary> VerbsLibrary::LoadFrom(const char* ibverbs, const char* rdmacm) {
  VerbsLibrary library;
  void* const verbs = dlopen(ibverbs, RTLD_NOW | RTLD_LOCAL);
  if (verbs == nullptr) return NotThere(ibverbs);
  void* const cm = dlopen(rdmacm, RTLD_NOW | RTLD_LOCAL);
  if (cm == nullptr) return NotThere(rdmacm);
  const char* missing = nullptr;
#define HAWSER_LOAD(name)                                                        \
  library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, #name)); \
  if (library.name == nullptr) missing = #name;
  void* handle = verbs;
  HAWSER_IBVERBS_FUNCTIONS(HAWSER_LOAD)
  handle = cm;
  HAWSER_RDMACM_FUNCTIONS(HAWSER_LOAD)
#undef HAWSER_LOAD
#define HAWSER_LOAD(name) library.name = reinterpret_cast<decltype(library.name)>(dlsym(handle, #name));
  handle = verbs;
  HAWSER_IBVERBS_OPTIONAL_FUNCTIONS(HAWSER_LOAD)
  handle = cm;
  HAWSER_RDMACM_OPTIONAL_FUNCTIONS(HAWSER_LOAD)
#undef HAWSER_LOAD
  if (missing != nullptr) {
    return absl::NotFoundError(absl::StrCat("open the RDMA libraries: ", ibverbs, " and ", rdmacm,
                                            " have no ", missing,
                                            "(): they are older than rdma-core 23; upgrade rdma-core"));
  }
  library.ibv_reg_dmabuf_mr =
      reinterpret_cast<decltype(library.ibv_reg_dmabuf_mr)>(dlsym(verbs, "ibv_reg_dmabuf_mr"));
  library.query_on_demand = QueryOnDemand;
  plain_reg_mr = library.ibv_reg_mr;
  extended_reg_mr = reinterpret_cast<decltype(extended_reg_mr)>(dlsym(verbs, "ibv_reg_mr_iova2"));
  library.ibv_reg_mr = [](ibv_pd* pd, void* address, size_t length_bytes, int access) {
    return RegisterWithOptionalAccess(plain_reg_mr, extended_reg_mr, pd, address, length_bytes, access);
  };
  return library;
}

absl::StatusOr<const VerbsLibrary*> VerbsLibrary::Load() {
  // Never destroyed, because the device may be used until the process ends.
  static const absl::StatusOr<VerbsLibrary>* const loaded =
      new absl::StatusOr<VerbsLibrary>(LoadFrom("libibverbs.so.1", "librdmacm.so.1"));
  if (!loaded->ok()) return loaded->status();
  return &**loaded;
}

}  // namespace hawser::fabric
