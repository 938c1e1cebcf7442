// File: simt/runtime_entries.cc: functions of the driver by their names: cuGetProcAddress, and the
// runtime's cudaGetDriverEntryPoint.
//
// A name goes without the number of its version ("cuMemAlloc" is cuMemAlloc_v2); there is one
// version of each function here, that of the headers. Programs that look functions up ask for many
// that they never call, so those that there are not are not found, and nothing is said of them.
#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "simt/runtime.h"

using namespace tutti::simt;

// Around the functions that say that they are missing (CMakeLists.txt); there are none of them in
// programs that have the runtime in them.
extern "C" {
[[gnu::weak]] extern const char __start_tutti_missing[], __stop_tutti_missing[];
}

namespace {

bool is_missing(const void* function) {
  const auto at = reinterpret_cast<std::uintptr_t>(function);
  return at >= reinterpret_cast<std::uintptr_t>(__start_tutti_missing) &&
         at < reinterpret_cast<std::uintptr_t>(__stop_tutti_missing);
}

/// What this library shows by that name; null: nothing, or a function that says that it is missing.
void* shown(const std::string& name) {
  static void* const self = [] {
    Dl_info found = {};
    dladdr(reinterpret_cast<const void*>(&is_missing), &found);
    return dlopen(found.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  }();
  void* const function = self == nullptr ? nullptr : dlsym(self, name.c_str());
  return is_missing(function) ? nullptr : function;
}

void* find(const std::string& name, bool per_thread) {
  if (void* const function = driver_entry(name, per_thread)) return function;
  for (const char* const version : {"_v3", "_v2", ""}) {
    for (const char* const ending : {"_ptsz", "_ptds", ""}) {
      if (!per_thread && *ending != '\0') continue;
      if (void* const function = shown(name + version + ending)) return function;
    }
  }
  return nullptr;
}

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char* name, void** function, int, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* result) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = find(name, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (result != nullptr)
    *result =
        *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = find(name, flags == cudaEnablePerThreadDefaultStream);
  if (result != nullptr)
    *result =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;  // Also without the function, as CUDA's documentation says.
}

}  // extern "C"
