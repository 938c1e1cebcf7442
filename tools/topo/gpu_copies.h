// File: tools/topo/gpu_copies.h: what copies between GPUs, and between them and the host, reach.
//
// Every copy runs alone: the copy engines of the GPUs do it, by CUDA's driver (libcuda.so.1), which
// is opened at run time. A copy is 64 MiB and has some 20 ms; the median of up to five counts. So
// eight GPUs take a second or two.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tutti/result.h"

namespace tutti::tools {

/// GB/s; 0: not measured.
struct GpuRates {
  struct Gpu {
    std::string bus;           // PCI address, as graphs have it.
    double in = 0, out = 0;    // From the host's memory, and to it.
    double inside = 0;         // Read and written, both counted, while it copies in its own memory.
    std::string why_not = {};  // For people, if it was not measured.
  };
  struct Pair {
    std::size_t from = 0, to = 0;
    double rate = 0;
    bool staged = false;  // By the memory of the host: peer access is refused.
  };
  std::vector<Gpu> gpus;
  std::vector<Pair> pairs;  // All ordered ones of GPUs that were measured.
};

struct GpuCopyOptions {
  /// Runs a function on a CPU near the GPU of this PCI address: memory that it makes is there.
  std::function<Status(const std::string& bus, const std::function<void()>&)> near;
  /// Called before each GPU: how many are done, and how many there are.
  std::function<void(std::size_t, std::size_t)> progress;
  const char* library = "libcuda.so.1";
};

/// All GPUs that CUDA shows this process. kUnsupported, in words for people: there is no driver, or
/// it refuses.
Result<GpuRates> measure_copies(const GpuCopyOptions& options);

}  // namespace tutti::tools
