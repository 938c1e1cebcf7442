// File: topology/probe/sources/cuda.h: what CUDA's driver says about the GPUs, as a value: what
// NVML does not know, namely what a program may do with their memory.
//
// The library (libcuda.so.1) comes with the driver, is opened at run time, and may be absent. As
// with NVML (nvml.h) all is asked here, once, and a capture keeps the value as JSON. No context is
// made, so no memory of a GPU is taken; but the first call wakes the GPUs, which takes a second or
// so. CUDA shows what CUDA_VISIBLE_DEVICES lets it, in that order: only bus addresses say which GPU
// is which.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

struct CudaGpu {
  int index = 0;  // As CUDA counts in this process.
  std::string bus;
  int sm = 0;          // 90: compute capability 9.0. 0: not known.
  int host_numa = -1;  // The NUMA node of the host that is nearest; -1: not known.
  // None: an old driver, which does not say.
  std::optional<bool> multicast;       // NVSwitch multicast, and reductions in the switch (NVLS).
  std::optional<bool> fabric_handles;  // Memory can be handed to other hosts of an NVLink fabric.
  std::optional<bool> gpudirect_rdma;  // The driver has what nvidia_peermem needs.
  std::optional<bool> dma_buf;         // Memory can be exported as dma-buf.
  /// By the peer's place in CudaFacts::gpus: whether this GPU can access its memory (1 or 0), and
  /// whether with all atomic operations. 2: not known.
  std::vector<int> access, atomics;
  friend bool operator==(const CudaGpu&, const CudaGpu&) = default;
};

struct CudaFacts {
  int version = 0;  // The driver's interface: 13000 is CUDA 13.0.
  std::vector<CudaGpu> gpus;
  friend bool operator==(const CudaFacts&, const CudaFacts&) = default;
};

/// Asks the library. Where there is none, or it refuses, that is an Error that says why:
/// kUnsupported.
Result<CudaFacts> read_cuda(const char* library = "libcuda.so.1");

/// As a capture keeps it: the facts, or why there are none.
std::string cuda_to_json(const Result<CudaFacts>& facts);
/// The reason, if the capture has one, is the Error again.
Result<CudaFacts> cuda_from_json(std::string_view text, std::string_view source);

}  // namespace tutti::topology
