// For LD_PRELOAD: makes rxe devices report another vendor. On a NIC Hawser grants memory by memory windows.
// On rxe, which it recognises by the vendor (VerbsDevice::is_rxe()), it registers memory instead. With this
// library unmodified programs take the path that they take on a NIC.
//
// rxe's provider calls ibv_cmd_query_device_any(), a function of libibverbs, and the linker finds this one
// first.

#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

namespace {

// The symbol version with which providers of rdma-core 35 and later are linked.
constexpr char kVersion[] = "IBVERBS_PRIVATE_34";
constexpr char kName[] = "ibv_cmd_query_device_any";

using QueryDevice = int (*)(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, size_t,
                            void*, size_t*);

QueryDevice Real() {
  void* const library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);  // Loaded: it loads the provider.
  void* const real = library != nullptr ? dlvsym(library, kName, kVersion) : nullptr;
  if (real == nullptr) {
    fprintf(stderr, "other_vendor: libibverbs.so.1 has no %s@%s\n", kName, kVersion);
    abort();
  }
  return reinterpret_cast<QueryDevice>(real);
}

}  // namespace

extern "C" int ibv_cmd_query_device_any(ibv_context* context, const ibv_query_device_ex_input* input,
                                        ibv_device_attr_ex* attr, size_t attr_size, void* response,
                                        size_t* response_size) {
  static const QueryDevice real = Real();
  const int result = real(context, input, attr, attr_size, response, response_size);
  if (result == 0 && attr->orig_attr.vendor_id == 0xffffff) attr->orig_attr.vendor_id = 0xfffffe;
  return result;
}
