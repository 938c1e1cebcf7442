// File: kernels/cuda/one_shot.h: a small all-reduce in one kernel, without interpreting a plan.
//
// It stands for the plan `one_shot`: each rank gives its contribution to all others, and reduces
// all of them in canonical order; the tests compare the two. Contributions are packed lines, so the
// data say themselves that they are there: one trip over the link, and no barrier between the two
// halves.
//
// There is no credit either. Ranks take turns with two areas, by the number of the call: who writes
// into an area again, two calls later, has got everybody's contribution to the call in between,
// which nobody gives before it is done reading. That number is the block's own, in device memory,
// so that a captured call can be replayed.
#pragma once
#include "kernels/cuda/body.h"

namespace tutti::cuda {

template <DataType type, ReduceOp op>
class OneShot {
 public:
  /// `work`: to give, and to reduce.
  TUTTI_DEVICE OneShot(const OneShotArguments& arguments, Work* work)
      : arguments_(arguments), give_(work[0]), reduce_(work[1]) {}

  TUTTI_DEVICE void run() {
    const std::uint64_t call = arguments_.calls[blockIdx.x];
    if (threadIdx.x == 0) prepare(call);
    bool failed = false;
    if (sync_block_or(false)) return;
    Watch watch{arguments_.common.abort, now_ns() + arguments_.common.timeout_ns, blockIdx.x};
    // All have read the number; the next call's kernel begins after this one's end.
    if (threadIdx.x == 0) arguments_.calls[blockIdx.x] = call + 1;
      // One place that does the work, for both: kernels are large enough.
#pragma unroll 1
    for (const Work* work = &give_; work <= &reduce_; ++work) {
      do_work<type, op>(arguments_.common, *work, watch, failed);
    }
  }

 private:
  TUTTI_DEVICE void prepare(std::uint64_t call) {
    const Arguments& common = arguments_.common;
    const std::uint64_t first = blockIdx.x * arguments_.elements_per_block;
    const std::uint64_t left = common.count - first;
    const std::uint64_t offset = first * size_of(type);
    Resolved input = {};
    // Only read; sources and targets have one type.
    input.at = const_cast<std::byte*>(common.input) + offset;
    input.form = Form::kContribution;
    input.scale = common.scaled;
    input.aligned = reinterpret_cast<std::uintptr_t>(input.at) % 16 == 0;
    Resolved output = {};
    output.at = common.output + offset;
    output.form = Form::kResult;
    output.aligned = reinterpret_cast<std::uintptr_t>(output.at) % 16 == 0;

    give_.elements = reduce_.elements = static_cast<unsigned>(
        left < arguments_.elements_per_block ? left : arguments_.elements_per_block);
    give_.lined = reduce_.lined = false;
    give_.plain = input.aligned;
    give_.copy = !common.scaled;  // Else what travels is a partial sum of one.
    reduce_.plain = reduce_.copy = false;
    give_.locations[0] = input;
    give_.source_count = 1;
    give_.target_count = common.ranks - 1;
    reduce_.source_count = common.ranks;
    reduce_.target_count = 1;
    reduce_.locations[common.ranks] = output;
    for (unsigned rank = 0; rank < common.ranks; ++rank) {
      if (rank == common.rank) {
        reduce_.locations[rank] = input;
        continue;
      }
      give_.locations[1 + rank - (rank > common.rank ? 1 : 0)] = area(rank, common.rank, call);
      reduce_.locations[rank] = area(common.rank, rank, call);
      reduce_.locations[rank].peer = static_cast<std::uint16_t>(rank);
    }
  }

  /// Where, in the memory of `owner`, the contribution of rank `from` is.
  TUTTI_DEVICE Resolved area(unsigned owner, unsigned from, std::uint64_t call) const {
    const std::uint64_t turn = std::uint64_t{blockIdx.x} * 2 + call % 2;
    const std::uint64_t number = turn * arguments_.common.ranks + from;
    Resolved at = {};
    at.at = arguments_.areas[owner] + number * arguments_.area_bytes;
    at.format = SlotFormat::kPacked;
    at.flag = packed_flag(call);
    at.form = arguments_.common.scaled ? Form::kPartial : Form::kContribution;
    at.whole = at.aligned = true;
    return at;
  }

  const OneShotArguments& arguments_;
  Work& give_;
  Work& reduce_;
};

template <DataType type, ReduceOp op>
__global__ void __launch_bounds__(kMostThreads, 1)
    one_shot(const __grid_constant__ OneShotArguments arguments) {
  __shared__ Work work[2];
  OneShot<type, op>(arguments, work).run();
}

}  // namespace tutti::cuda
