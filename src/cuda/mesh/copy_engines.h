// File: cuda/mesh/copy_engines.h: runs a plan by copies of streams: no kernel, no multiprocessor.
//
// The plan is the one that kernels would run on mapped buffers (plan/passes/direct.cc). The host
// reads the rank's steps and puts onto streams what they say: a move is a copy to each of its
// targets, a signal and a wait are flags (stream_signals.h). Before its first copy a rank meets all
// others, and after its last one once more. So any two ranks set each flag in turn, and it may be
// one flag with one value, also in graphs that are replayed.
//
// Copies from different peers go on some streams of the communicator's own, which begin
// behind the caller's stream, and for which that waits. A rank only writes its own output: where a
// wait is ended early, the copies behind it still take place.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/mesh/mesh.h"
#include "cuda/mesh/stream_signals.h"
#include "plan/plan.h"
#include "tutti/result.h"

namespace tutti::exec {

class CopyEngines {
 public:
  static constexpr int kStreams = 4;  // For the copies of a call.
  /// kUnsupported: why copies can't run the plan, for all ranks alike. It has one lane of moves
  /// from inputs to the rank's own output, and then waits; and at most one signal between two
  /// ranks.
  static Status suits(const plan::Plan& plan);

  /// Makes the streams, on this thread's device. Before anything else; `signals` has to outlive
  /// this. kUnsupported: streams of the device can't wait for values.
  Status make(StreamSignals& signals, int rank, int rank_count);

  /// Puts the rank's part of a plan that suits onto the stream. May be captured. One thread at a
  /// time, in the order of calls.
  Status launch(const plan::Plan& plan, const CudaCall& call, cudaStream_t stream);

 private:
  struct Destroy {
    void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
    void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
  };
  /// A stream for some of the peers, and an event behind all that it does.
  struct Side {
    std::unique_ptr<CUstream_st, Destroy> stream;
    std::unique_ptr<CUevent_st, Destroy> done;
  };
  cudaStream_t side_of(int peer) const {
    return sides_[static_cast<std::size_t>(peer) % sides_.size()].stream.get();
  }
  Status fork(cudaStream_t stream) const;
  Status join(cudaStream_t stream) const;
  Status run(const plan::Plan& plan, const CudaCall& call, std::uint64_t flag,
             std::vector<bool>& told) const;
  Status move(const plan::Plan& plan, const plan::Step& step, const CudaCall& call) const;

  StreamSignals* signals_ = nullptr;
  int rank_ = 0, rank_count_ = 1;
  std::array<Side, kStreams> sides_;
  std::unique_ptr<CUevent_st, Destroy> begun_;
};

}  // namespace tutti::exec
