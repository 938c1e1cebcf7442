// File: cuda/comm/launch_order.h: the order of a rank's calls on streams and in graphs.
//
// Calls run in the order in which they are launched, on any streams. Each launch records the
// communicator's event, and the next call waits for it if it is on another stream. A graph does
// both by nodes: its first call waits for the record that is the latest when the graph is launched,
// and each of its calls records the event anew. So replays and other calls keep their order, too.
// Another event orders the calls within one capture.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cuda/driver/memory.h"
#include "tutti/result.h"

namespace tutti {

class CudaEvent {
 public:
  /// On this thread's device. Before anything else.
  Status make();
  Status record(cudaStream_t stream) const {
    return exec::cuda_status(cudaEventRecord(event_.get(), stream), "recording an event");
  }
  /// Later work on the stream waits for the latest record.
  Status hold(cudaStream_t stream) const {
    return exec::cuda_status(cudaStreamWaitEvent(stream, event_.get(), 0), "waiting for an event");
  }
  /// The same as nodes of the graph that captures the stream: each launch of the graph does so.
  Status record_by_graph(cudaStream_t stream) const {
    return exec::cuda_status(
        cudaEventRecordWithFlags(event_.get(), stream, cudaEventRecordExternal),
        "recording an event by a graph");
  }
  Status hold_by_graph(cudaStream_t stream) const {
    return exec::cuda_status(cudaStreamWaitEvent(stream, event_.get(), cudaEventWaitExternal),
                             "waiting for an event in a graph");
  }
  Status synchronize() const {
    return exec::cuda_status(cudaEventSynchronize(event_.get()), "waiting for the last call");
  }
  /// Whether the work before the latest record is done.
  bool done() const { return cudaEventQuery(event_.get()) != cudaErrorNotReady; }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
  };
  std::unique_ptr<CUevent_st, Destroy> event_;
};

class LaunchOrder {
 public:
  /// On this thread's device. Before anything else.
  Status make();
  /// A call begins on `stream`: what comes there waits for the calls before.
  Status enter(cudaStream_t stream);
  /// The call is on the stream.
  Status leave(cudaStream_t stream);
  /// Calls on several streams are one operation. Before the first: what comes on the first stream
  /// also waits for what is on the others.
  Status join(std::span<const cudaStream_t> streams) const;
  /// After the last: what comes on any of them waits for the last call.
  Status fork(std::span<const cudaStream_t> streams) const;

  /// Waits for all calls but those that graphs replay.
  Status synchronize() const { return launched_.synchronize(); }
  /// Whether these calls are done. Any thread, on the rank's device.
  bool done() const { return launched_.done(); }
  /// Between enter and leave: whether the call is captured, and does not run now.
  bool capturing() const { return current_ == &in_capture_; }
  /// Whether graphs may replay calls. Any thread.
  bool captured() const { return captured_.load(std::memory_order_relaxed); }
  /// How many calls there were. Any thread.
  std::uint64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  Status enter_captured(cudaStream_t stream, unsigned long long capture);

  CudaEvent launched_, in_capture_;  // The last of all calls; the last within the last capture.
  CudaEvent* current_ = nullptr;     // The one of them that is being launched.
  bool there_ = false;               // There was a call that was not captured,
  unsigned long long stream_ = 0;    // on the stream of this id: handles are used again.
  unsigned long long entered_ = 0;   // The capture of the call that is being launched,
  std::optional<unsigned long long> capture_;  // and of the last one that was.
  std::atomic<bool> captured_{false};          // relaxed: no other memory depends on it.
  CudaEvent join_;
  std::atomic<std::uint64_t> calls_{0};  // relaxed: only shown.
};

}  // namespace tutti
