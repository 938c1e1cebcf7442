// File: perf/cuda_timing.h: ranks on devices, their streams, and the time of what they do.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "cuda/driver/memory.h"
#include "cuda/mesh/mesh.h"
#include "perf/sweep/noise.h"

namespace tutti::timing {

using perf::median;
/// How far values are from each other, as a share of their median.
inline double spread(const std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return (*most - *least) / median(values);
}
inline double rate(std::size_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

/// Holds a stream until all that is measured was given to the device. Else what takes a device less
/// than the host is measured with the host's time, and ranks that wait for each other with that of
/// the calls for all of them.
class Gate {
 public:
  /// A call that waits for the device meanwhile (a kernel that is loaded) waits as long, no longer.
  static constexpr std::chrono::milliseconds kLongest{20};

  explicit Gate(cudaStream_t stream) : number_(++closed()) {
    static_assert(sizeof(void*) == sizeof number_);
    held_ = exec::cuda_status(cudaLaunchHostFunc(stream, wait, reinterpret_cast<void*>(number_)),
                              "holding a stream");
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  /// Whether the stream could be held.
  Status take() { return std::move(held_); }
  // relaxed: nothing else is told by it.
  void open() const { opened().store(number_, std::memory_order_relaxed); }

 private:
  // Not of the gate, which may be gone when the stream comes there.
  static std::uintptr_t& closed() {
    static std::uintptr_t number = 0;
    return number;
  }
  static std::atomic<std::uintptr_t>& opened() {
    static std::atomic<std::uintptr_t> number{0};
    return number;
  }
  static void CUDART_CB wait(void* number) {
    const auto until = std::chrono::steady_clock::now() + kLongest;
    // relaxed: as in open().
    while (opened().load(std::memory_order_relaxed) < reinterpret_cast<std::uintptr_t>(number) &&
           std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
    }
  }

  const std::uintptr_t number_;
  Status held_ = ok();
};

/// A stream for each of some devices, which may be one and the same, and the time from the first to
/// the last thing they do.
class Streams {
 public:
  explicit Streams(const std::vector<int>& devices)
      : devices_(devices), streams_(devices.size()), done_(devices.size()) {
    for (std::size_t i = 0; i < size(); ++i) {
      const exec::OnDevice on(devices_[i]);
      cudaStreamCreateWithFlags(&streams_[i], cudaStreamNonBlocking);
      cudaEventCreateWithFlags(&done_[i], cudaEventDisableTiming);
    }
    const exec::OnDevice on(devices_[0]);
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~Streams() {
    for (cudaEvent_t event : done_) cudaEventDestroy(event);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  std::size_t size() const { return streams_.size(); }
  cudaStream_t operator[](std::size_t index) const { return streams_[index]; }

  /// The time of the work that `enqueue` gives each stream.
  Result<double> microseconds(const std::function<Status(std::size_t stream)>& enqueue) const {
    return microseconds_of_all([&]() -> Status {
      for (std::size_t i = 0; i < size(); ++i) TUTTI_RETURN_IF_ERROR(enqueue(i));
      return ok();
    });
  }
  /// The time of the work that `enqueue` gives all of them.
  Result<double> microseconds_of_all(const std::function<Status()>& enqueue) const {
    using exec::cuda_status;
    Gate gate(streams_[0]);
    TUTTI_RETURN_IF_ERROR(gate.take());
    TUTTI_RETURN_IF_ERROR(cuda_status(cudaEventRecord(begin_, streams_[0]), "recording an event"));
    for (std::size_t i = 1; i < size(); ++i) cudaStreamWaitEvent(streams_[i], begin_, 0);
    TUTTI_RETURN_IF_ERROR(enqueue());
    for (std::size_t i = 1; i < size(); ++i) {
      cudaEventRecord(done_[i], streams_[i]);
      cudaStreamWaitEvent(streams_[0], done_[i], 0);
    }
    cudaEventRecord(end_, streams_[0]);
    gate.open();
    TUTTI_RETURN_IF_ERROR(cuda_status(cudaEventSynchronize(end_), "running a measurement"));
    float milliseconds = 0;
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaEventElapsedTime(&milliseconds, begin_, end_), "the time"));
    return static_cast<double>(milliseconds) * 1e3;
  }

  /// The time of one replay of the work that `enqueue` gives the streams, as `replays` graphs that
  /// go at once.
  Result<std::vector<double>> replayed(const std::function<Status()>& enqueue, int replays,
                                       int rounds) const {
    using exec::cuda_status;
    std::vector<cudaGraphExec_t> graphs(size());
    for (cudaStream_t stream : streams_) {
      TUTTI_RETURN_IF_ERROR(
          cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "capturing"));
    }
    Status status = ok();
    for (int i = 0; i < replays && status; ++i) status = enqueue();
    for (std::size_t i = 0; i < size(); ++i) {  // Ends on all, whatever happened.
      cudaGraph_t graph = nullptr;
      Status ended = cuda_status(cudaStreamEndCapture(streams_[i], &graph), "capturing");
      if (ended) ended = cuda_status(cudaGraphInstantiate(&graphs[i], graph, 0), "a graph");
      if (graph != nullptr) cudaGraphDestroy(graph);
      if (status && !ended) status = std::move(ended);
    }
    // All are there before the first begins, as it waits for the others.
    for (std::size_t i = 0; i < size() && status; ++i) {
      status = cuda_status(cudaGraphUpload(graphs[i], streams_[i]), "a graph");
      if (status) status = cuda_status(cudaStreamSynchronize(streams_[i]), "a graph");
    }
    std::vector<double> times;
    for (int round = 0; round <= rounds && status; ++round) {
      auto time = microseconds([&](std::size_t rank) {
        return cuda_status(cudaGraphLaunch(graphs[rank], streams_[rank]), "a graph");
      });
      if (!time) status = std::move(time.error());
      if (time && round > 0) times.push_back(*time / replays);
    }
    for (cudaGraphExec_t graph : graphs) {
      if (graph != nullptr) cudaGraphExecDestroy(graph);
    }
    TUTTI_RETURN_IF_ERROR(std::move(status));
    return times;
  }

 private:
  std::vector<int> devices_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> done_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

inline Result<std::uint32_t> multiprocessors_of(int device) {
  int count = 0;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "the device"));
  return static_cast<std::uint32_t>(count);
}

/// Kernels that wait in vain are not to take the time of all others.
inline exec::CudaMeshOptions mesh_of(std::vector<int> devices) {
  exec::CudaMeshOptions options;
  options.devices = std::move(devices);
  options.timeout = std::chrono::seconds(5);
  return options;
}

/// Whether all kernels of the mesh ended as they should.
inline Status check(const exec::CudaMesh& mesh, std::size_t ranks) {
  for (std::size_t rank = 0; rank < ranks; ++rank)
    TUTTI_RETURN_IF_ERROR(mesh.rings().check(static_cast<int>(rank)));
  return ok();
}

/// A call of every rank, with `input` and `output` of each.
template <class Input, class Output>
std::vector<exec::CudaCall> calls_of(std::size_t ranks, DataType type, std::size_t count,
                                     const Input& input, const Output& output) {
  exec::CudaCall call;
  call.type = type;
  call.count = count;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    call.peer_inputs.push_back(input(rank));
    call.peer_outputs.push_back(output(rank));
  }
  std::vector<exec::CudaCall> calls(ranks, call);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    calls[rank].input = call.peer_inputs[rank];
    calls[rank].output = call.peer_outputs[rank];
  }
  return calls;
}

/// Gives each stream its rank's call.
inline Status launch_one_shots(exec::CudaMesh& mesh, const std::vector<exec::CudaCall>& calls,
                               const Streams& streams) {
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    TUTTI_RETURN_IF_ERROR(mesh.launch_one_shot(static_cast<int>(rank), calls[rank], streams[rank]));
  }
  return ok();
}

}  // namespace tutti::timing
