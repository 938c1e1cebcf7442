// File: simt/runtime_copies.cc: what of the driver's library a program takes that measures copies:
// memory, streams, events and copies of libcuda.so.1.
//
// Copies are done, and how long they would take is counted: bytes over the rate of the path that
// the machine's graph (machine.h) has between both memories, one copy of a stream after the other.
// The time between two of the driver's events is that of the copies between them. So what is
// measured is what the machine's file says, on a busy machine, too. Without a file it is the time
// that passed.
#include <cuda.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "simt/machine.h"
#include "simt/runtime.h"
#include "topology/graph/paths.h"

using namespace tutti::simt;

namespace {

using tutti::topology::Adjacency;
using tutti::topology::Graph;
using tutti::topology::NodeId;
using tutti::topology::NodeKind;

CUresult result_of(cudaError_t error) { return static_cast<CUresult>(error); }
void* pointer(CUdeviceptr at) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(at)); }

constexpr double kMemory = 1000;  // GB/s that a device copies in its own memory; no file says it.
constexpr double kStaged = 0.5;   // What of a path is left where data stop in the host's memory.

struct Clocks {
  std::mutex mutex;
  std::map<CUstream, double> streams;  // Seconds of the copies so far.
  std::map<CUevent, double> events;    // Those of its stream when it was recorded.
};
Clocks& clocks() {
  static auto& one = *new Clocks;
  return one;
}

NodeId gpu_of(const Graph& graph, int device) {
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    if (graph[gpu].bus == cuda_gpu(device).bus) return gpu;
  }
  return {};
}

/// GB/s from a device's memory, or (-1) from the host's next to the other device; 0: not known.
double rate_of(int from, int to) {
  const Graph& graph = machine_graph();
  if (from == to) return from < 0 ? 0 : kMemory;
  const auto node_of = [&](int device, int other) {
    if (device >= 0) return gpu_of(graph, device);
    const NodeId gpu = gpu_of(graph, other);
    return gpu.exists() ? numa_above(graph, gpu, true) : gpu;
  };
  const NodeId a = node_of(from, to), b = node_of(to, from);
  if (!a.exists() || !b.exists()) return 0;
  const bool staged = from >= 0 && to >= 0 && !settings().peers(from, to);
  const double rate =
      best_path(graph, Adjacency(graph), a, b, {.relays = false}).gigabytes_per_second;
  return staged ? rate * kStaged : rate;
}

}  // namespace

extern "C" {

CUresult cuMemAlloc(CUdeviceptr* at, std::size_t bytes) {
  void* made = nullptr;
  const cudaError_t error = cudaMalloc(&made, bytes);
  *at = reinterpret_cast<std::uintptr_t>(made);
  return result_of(error);
}
CUresult cuMemFree(CUdeviceptr at) { return result_of(cudaFree(pointer(at))); }
CUresult cuMemHostAlloc(void** at, std::size_t bytes, unsigned flags) {
  return result_of(cudaHostAlloc(at, bytes, flags));
}
CUresult cuMemFreeHost(void* at) { return result_of(cudaFreeHost(at)); }
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  CUdevice device = 0;
  cuCtxPushCurrent(peer);
  cuCtxGetDevice(&device);
  cuCtxPopCurrent(&peer);
  return result_of(cudaDeviceEnablePeerAccess(device, flags));
}

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return result_of(cudaStreamCreateWithFlags(stream, flags));
}
CUresult cuStreamDestroy(CUstream stream) {
  {
    const std::lock_guard lock(clocks().mutex);
    clocks().streams.erase(stream);
  }
  return result_of(cudaStreamDestroy(stream));
}
CUresult cuStreamSynchronize(CUstream stream) { return result_of(cudaStreamSynchronize(stream)); }

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  const cudaError_t error =
      cudaMemcpyAsync(pointer(to), pointer(from), bytes, cudaMemcpyDefault, stream);
  const double rate =
      rate_of(owner_of(pointer(from), bytes, -1).device, owner_of(pointer(to), bytes, -1).device);
  const std::lock_guard lock(clocks().mutex);
  if (rate > 0) clocks().streams[stream] += 1e-9 * static_cast<double>(bytes) / rate;
  return result_of(error);
}
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext,
                           std::size_t bytes, CUstream stream) {
  return cuMemcpyAsync(to, from, bytes, stream);
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return result_of(cudaEventCreateWithFlags(event, flags));
}
CUresult cuEventDestroy(CUevent event) {
  {
    const std::lock_guard lock(clocks().mutex);
    clocks().events.erase(event);
  }
  return result_of(cudaEventDestroy(event));
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  {
    const std::lock_guard lock(clocks().mutex);
    clocks().events[event] = clocks().streams[stream];
  }
  return result_of(cudaEventRecord(event, stream));
}
// The header calls it by its second version, which drivers before CUDA 12.8 lack.
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  const cudaError_t error = cudaEventElapsedTime(milliseconds, from, to);
  const std::lock_guard lock(clocks().mutex);
  const double seconds = clocks().events[to] - clocks().events[from];
  if (seconds > 0) *milliseconds = static_cast<float>(1e3 * seconds);
  return result_of(error);
}

}  // extern "C"
