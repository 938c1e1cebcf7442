// File: simt/runtime_symbols.cc: variables of devices, and the functions that copy to and from
// them.
//
// A variable has a copy in the memory of each device, made when the device first runs a kernel or
// is first asked for one, as a module is loaded on a GPU. The host knows it by the address of the
// variable itself.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <vector>

#include "simt/runtime.h"
#include "simt/variables.h"

namespace tutti::simt {
namespace {

struct Variables {
  std::mutex mutex;
  std::vector<DeviceVariable*> all;             // Guarded by the mutex, as are
  std::size_t made[kMostVariableDevices] = {};  // those of them with copies, by device.
  std::atomic<std::size_t> count{0};            // all.size(), to look at first.
  std::atomic<std::size_t> made_of[kMostVariableDevices]{};  // The same as `made`.
};
Variables& variables() {
  static auto& one = *new Variables;
  return one;
}

/// The current device's copy of the variable with this address on the host; null: it is no symbol,
/// or the range is not in it.
char* symbol(const void* host, std::size_t offset, std::size_t bytes, std::size_t* size = nullptr) {
  const int device = this_device();
  make_variables(device);
  const std::lock_guard lock(variables().mutex);
  for (const DeviceVariable* variable : variables().all) {
    if (variable->host != host) continue;
    if (size != nullptr) *size = variable->bytes;
    const bool inside = offset <= variable->bytes && bytes <= variable->bytes - offset;
    return inside ? static_cast<char*>(variable->copies[device]) + offset : nullptr;
  }
  return nullptr;
}

}  // namespace

void register_variable(DeviceVariable* variable) {
  const std::lock_guard lock(variables().mutex);
  variables().all.push_back(variable);
  variables().count = variables().all.size();
}

void make_variables(int device) {
  Variables& known = variables();
  if (known.made_of[device] == known.count) return;
  const std::lock_guard lock(known.mutex);
  for (std::size_t& i = known.made[device]; i < known.all.size(); ++i) {
    DeviceVariable& variable = *known.all[i];
    if (!allocate_variable(&variable.copies[device], variable.bytes, device))
      die("no memory for the variable %s on device %d", variable.name, device);
    std::memcpy(variable.copies[device], variable.host, variable.bytes);
  }
  known.made_of[device] = known.all.size();
}

void* variable_here(const DeviceVariable& variable) {
  return current == nullptr ? variable.host : variable.copies[current->device];
}

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaGetSymbolAddress(void** at, const void* host) {
  char* const found = symbol(host, 0, 0);
  return found == nullptr ? failed(cudaErrorInvalidSymbol) : answer(at, static_cast<void*>(found));
}
cudaError_t cudaGetSymbolSize(std::size_t* bytes, const void* host) {
  std::size_t size = 0;
  if (symbol(host, 0, 0, &size) == nullptr) return failed(cudaErrorInvalidSymbol);
  return answer(bytes, size);
}
cudaError_t cudaMemcpyToSymbol(const void* host, const void* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind kind) {
  char* const to = symbol(host, offset, bytes);
  return to == nullptr ? failed(cudaErrorInvalidSymbol) : cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* host, const void* from, std::size_t bytes,
                                    std::size_t offset, cudaMemcpyKind kind, cudaStream_t stream) {
  char* const to = symbol(host, offset, bytes);
  if (to == nullptr) return failed(cudaErrorInvalidSymbol);
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* host, std::size_t bytes, std::size_t offset,
                                 cudaMemcpyKind kind) {
  const char* const from = symbol(host, offset, bytes);
  return from == nullptr ? failed(cudaErrorInvalidSymbol) : cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* host, std::size_t bytes,
                                      std::size_t offset, cudaMemcpyKind kind,
                                      cudaStream_t stream) {
  const char* const from = symbol(host, offset, bytes);
  if (from == nullptr) return failed(cudaErrorInvalidSymbol);
  return cudaMemcpyAsync(to, from, bytes, kind, stream);
}

}  // extern "C"
