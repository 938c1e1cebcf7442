#include "topology/probe/sources/cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/driver_library.h"
#include "topology/probe/sources/cuda_functions.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

struct Library : DriverLibrary {
  using DriverLibrary::DriverLibrary;
#define TUTTI_CUDA_FUNCTION(field, name, version, ...) int (*field)(__VA_ARGS__) = find(#name);
  TUTTI_PROBED_CUDA_FUNCTIONS(TUTTI_CUDA_FUNCTION)
#undef TUTTI_CUDA_FUNCTION
};
constexpr int kMajor = 75, kMinor = 76, kGpuDirectRdma = 116, kDmaBuf = 124, kFabricHandles = 128,
              kMulticast = 132, kHostNuma = 134;
constexpr int kPairAccess = 2, kPairAtomics = 3;
constexpr int kMostGpus = 256;

std::optional<int> attribute(const Library& library, int which, int device) {
  int value = 0;
  if (!ask(library.attribute, &value, which, device)) return {};
  return value;
}

std::optional<bool> flag(const Library& library, int which, int device) {
  const auto value = attribute(library, which, device);
  if (!value) return {};
  return *value != 0;
}

CudaGpu read_gpu(const Library& library, int device, int index) {
  CudaGpu gpu;
  gpu.index = index;
  std::array<char, 64> bus{};
  if (ask(library.bus, bus.data(), static_cast<int>(bus.size()), device)) {
    bus.back() = '\0';
    gpu.bus = parse_bus(bus.data());
  }
  const int major = attribute(library, kMajor, device).value_or(0);
  const int minor = attribute(library, kMinor, device).value_or(0);
  if (major > 0 && major < 100 && minor >= 0 && minor < 10) gpu.sm = major * 10 + minor;
  gpu.host_numa = std::clamp(attribute(library, kHostNuma, device).value_or(-1), -1, 65535);
  gpu.multicast = flag(library, kMulticast, device);
  gpu.fabric_handles = flag(library, kFabricHandles, device);
  gpu.gpudirect_rdma = flag(library, kGpuDirectRdma, device);
  gpu.dma_buf = flag(library, kDmaBuf, device);
  return gpu;
}

// Both functions say whether there is access; the second is the one that also knows of settings.
void read_pair(const Library& library, int from, int to, CudaGpu& gpu) {
  constexpr int kUnknown = 2;
  if (from == to) {
    gpu.access.push_back(1);
    gpu.atomics.push_back(1);
    return;
  }
  int able = 0, allowed = 1, atomics = 0;
  const bool knows = ask(library.can_access, &able, from, to);
  if (!ask(library.pair_attribute, &allowed, kPairAccess, from, to)) allowed = 1;
  gpu.access.push_back(knows ? (able != 0 && allowed != 0 ? 1 : 0) : kUnknown);
  const bool says = ask(library.pair_attribute, &atomics, kPairAtomics, from, to);
  gpu.atomics.push_back(says ? (atomics != 0 ? 1 : 0) : kUnknown);
}

Error absent(std::string what) { return {Code::kUnsupported, std::move(what), {}, {}}; }

// What cuInit means, of what an administrator meets.
std::string_view meaning_of(int code) {
  switch (code) {
    case 34: return ": a stub, not the driver's library";
    case 100: return ": there is no GPU";
    case 802: return ": the system is not ready; is the fabric manager running?";
    case 803: return ": library and kernel driver are of different versions";
    case 804: return ": the compatibility library does not support this GPU";
    default: return "";
  }
}

}  // namespace

Result<CudaFacts> read_cuda(const char* name) {
  const Library library(name);
  if (!library.opened()) return absent(fmt::format("no CUDA: there is no {}", name));
  if (library.init == nullptr) return absent(fmt::format("no CUDA: {} has no cuInit", name));
  const int code = call(library.init, 0);
  if (code != 0) {
    return absent(fmt::format("no CUDA: {} refuses with error {}{}", name, code, meaning_of(code)));
  }
  CudaFacts facts;
  if (!ask(library.version, &facts.version)) facts.version = 0;
  int count = 0;
  if (!ask(library.count, &count))
    return absent("no CUDA: it does not say how many GPUs there are");
  std::vector<int> devices;
  for (int i = 0; i < count && i < kMostGpus; ++i) {
    int device = 0;
    if (!ask(library.device, &device, i)) continue;
    devices.push_back(device);
    facts.gpus.push_back(read_gpu(library, device, i));
  }
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (const int to : devices) read_pair(library, devices[a], to, facts.gpus[a]);
  }
  return facts;
}

}  // namespace tutti::topology
