// File: kernels/cuda/two_shot.h: an all-reduce over mapped peers in one kernel, without slots and
// without interpreting a plan: each rank reduces its piece of all ranks' inputs, in canonical
// order, and writes the result to all ranks' outputs.
//
// It stands for the plan `two_shot+direct`; the tests compare the two. Nothing is staged, so each
// byte crosses a link once in each direction. A block does a share of the rank's piece.
//
// Peers' buffers are touched between two meetings with the peers' blocks of the same number: before
// the first the peer's kernel may not have begun, and what its stream did before may not be over;
// after the second it may be over.
#pragma once
#include "kernels/cuda/mapped.h"

namespace tutti::cuda {

template <DataType type, ReduceOp op>
TUTTI_DEVICE void two_shot_steps(const Arguments& arguments, Work& work, Watch& watch) {
  between_meetings<type>(arguments, work, watch, [&](std::size_t, bool& failed) {
    Body<type, op, Where::kPlain>(arguments, work, watch, failed).run();
  });
}

template <DataType type, ReduceOp op>
__global__ void __launch_bounds__(kMostThreads, 1)
    two_shot(const __grid_constant__ Arguments arguments) {
  __shared__ Work work;
  run_call(arguments, [&](Watch& watch) { two_shot_steps<type, op>(arguments, work, watch); });
}

}  // namespace tutti::cuda
