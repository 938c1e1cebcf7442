// File: kernels/cuda/multimem.h: all-reduce and broadcast on multicast memory (NVLink SHARP): the
// switch adds what ranks have, and copies what one of them stores.
//
// Each rank reads the sum of its piece, once, and stores it once, to all: (n-1)/n of what a
// two-shot all-reduce over mapped peers reads and writes stays in the switch. The order of the
// addition is the switch's, so it is of the relaxed contract; it stands for `two_shot+direct` but
// for that.
//
// Blocks of one number meet before and after, by counters that are multicast too: one addition
// tells all ranks. They only grow: the r-th meeting is over when `ranks * r` have come.
#pragma once
#include "kernels/cuda/fused.h"
#include "kernels/cuda/mapped.h"

namespace tutti::cuda {

/// By the first thread. False: it gave up waiting. Before it a barrier orders what other threads of
/// the block did, and one after it what they do.
TUTTI_DEVICE bool meet_by_multimem(const MultimemArguments& arguments, Watch& watch) {
  if (threadIdx.x != 0) return true;
  constexpr std::size_t kApart = kCounterBytes / sizeof(std::uint64_t);
  const std::uint64_t round = ++arguments.rounds[blockIdx.x];
  fence_alias();  // Writes by the one address are seen by the other.
  // release: what the block did to members' memory is over before they count it.
  multimem_count_release(arguments.counters + blockIdx.x * kApart);
  const std::uint64_t* const arrived = arguments.arrived + blockIdx.x * kApart;
  while (waits() && load_relaxed(arrived) < round * arguments.common.ranks) {
    if (watch.gives_up(arguments.common.rank)) return false;
  }
  acquire(arrived);  // Pairs with all ranks' releases.
  watch.got_room();
  fence_alias();
  return true;
}

TUTTI_DEVICE void end_meeting(const Watch& watch) {
  if (watch.why != Why::kNothing) tell(watch);
}

/// Calls `visit(at)` for the thread's 16-byte vectors of a run of bytes.
template <class Visit>
TUTTI_DEVICE void for_each_vector(std::uint64_t first, std::uint64_t bytes, Visit visit) {
#pragma unroll 4
  for (std::uint64_t at = threadIdx.x * 16; at < bytes; at += blockDim.x * 16) visit(first + at);
}

template <DataType type>
__global__ void __launch_bounds__(kMostThreads, 1)
    multimem_all_reduce(const __grid_constant__ MultimemArguments arguments) {
  Watch watch{&arguments.common, blockIdx.x};
  if (sync_block_or(!meet_by_multimem(arguments, watch))) return end_meeting(watch);
  const plan::Range share = share_of_block(arguments.common, grain_of(type));
  for_each_vector(share.offset * size_of(type), share.count * size_of(type), [&](std::uint64_t at) {
    multimem_store(arguments.output + at, multimem_add<type>(arguments.input + at));
  });
  if (sync_block_or(false)) return;
  meet_by_multimem(arguments, watch);
  end_meeting(watch);
}

static __global__ void __launch_bounds__(kMostThreads, 1)
    multimem_broadcast(const __grid_constant__ MultimemArguments arguments) {
  Watch watch{&arguments.common, blockIdx.x};
  if (sync_block_or(!meet_by_multimem(arguments, watch))) return end_meeting(watch);
  if (arguments.common.rank == arguments.root) {
    const plan::Range share =
        plan::piece_of(arguments.common.count, gridDim.x, blockIdx.x, kCounterBytes);
    for_each_vector(share.offset, share.count, [&](std::uint64_t at) {
      multimem_store(arguments.output + at, load<Vector16>(arguments.input + at));
    });
  }
  if (sync_block_or(false)) return;
  meet_by_multimem(arguments, watch);
  end_meeting(watch);
}

}  // namespace tutti::cuda
