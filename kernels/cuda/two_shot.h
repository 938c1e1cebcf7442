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
#include "kernels/cuda/body.h"
#include "kernels/cuda/meeting.h"
#include "plan/partition.h"

namespace tutti::cuda {

/// The block's share of the elements that its rank reduces.
TUTTI_DEVICE plan::Range share_of_block(const Arguments& arguments, std::size_t grain) {
  const plan::Range piece = plan::piece_of(arguments.count, arguments.ranks, arguments.rank, grain);
  plan::Range share = plan::piece_of(piece.count, gridDim.x, blockIdx.x, grain);
  share.offset += piece.offset;
  return share;
}

/// Work of which all ranks' inputs are the sources and all ranks' outputs the targets, by one
/// thread. In place a rank's input is the output that is written last, as anywhere.
template <DataType type>
TUTTI_DEVICE void prepare_mapped(const Arguments& arguments, plan::Range range, Work& work) {
  const std::uint64_t offset = range.offset * size_of(type);
  work.source_count = work.target_count = arguments.ranks;
  work.elements = static_cast<unsigned>(range.count);
  work.lined = work.copy = false;
  work.plain = true;
  for (unsigned rank = 0; rank < arguments.ranks; ++rank) {
    Resolved& source = work.locations[rank] = {};
    // Only read; sources and targets have one type.
    source.at = const_cast<std::byte*>(arguments.peer_inputs[rank]) + offset;
    source.form = Form::kContribution;
    source.aligned = reinterpret_cast<std::uintptr_t>(source.at) % 16 == 0;
    if (!source.aligned) work.plain = false;
    Resolved& target = work.locations[arguments.ranks + rank] = {};
    target.at = arguments.peer_outputs[rank] + offset;
    target.form = Form::kResult;
    target.aligned = reinterpret_cast<std::uintptr_t>(target.at) % 16 == 0;
  }
}

template <DataType type, ReduceOp op>
__global__ void __launch_bounds__(kMostThreads, 1)
    two_shot(const __grid_constant__ Arguments arguments) {
  __shared__ Work work;
  Watch watch{arguments.abort, now_ns() + arguments.timeout_ns, blockIdx.x};
  const Meeting meeting(arguments, watch);
  if (threadIdx.x == 0) {
    prepare_mapped<type>(arguments, share_of_block(arguments, grain_of(type)), work);
  }
  bool failed = !meeting.meet();
  if (sync_block_or(failed)) return;
  Body<type, op, Where::kPlain>(arguments, work, watch, failed).run();
  if (sync_block_or(failed)) return;
  meeting.meet();
}

}  // namespace tutti::cuda
