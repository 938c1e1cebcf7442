// File: kernels/cuda/rms_norm.h: all-reduce, residual and RMSNorm in one kernel: what follows the
// tensor-parallel halves of a transformer's layer.
//
//   sum = all_reduce(input)             rounded to the type, as the collective alone would
//   residual = residual + sum           rounded likewise, in all ranks' memory
//   output = residual / sqrt(mean(residual^2) + epsilon) * weight
//
// Each rank does a piece of the rows, for all ranks: its part of two_shot+direct, with the rest of
// the row's work between reading and writing. A row is a block's at a time. Output may be the
// input: a row is read whole before it is written. The order of squares: a thread's one after the
// other, lanes of a warp as a tree, warps in order; so the bits depend on the threads of a block,
// and on nothing else.
#pragma once
#include <cmath>

#include "kernels/cuda/fused.h"
#include "kernels/cuda/mapped.h"

namespace tutti::cuda {

template <DataType type>
class RmsNorm {
  using Traits = TypeTraits<type>;
  using Element = typename Traits::Element;
  using Sum = Body<type, ReduceOp::kSum, Where::kPlain>;
  using Compute = Arithmetic<type, ReduceOp::kSum>;
  using Values = typename Compute::Values;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kBytes = Traits::kBytes;

 public:
  struct Shared {
    Work work;
    float squares[kMostThreads / kWarpLanes];
  };

  TUTTI_DEVICE RmsNorm(const RmsNormArguments& arguments, Shared& shared)
      : arguments_(arguments), common_(arguments.common), shared_(shared) {}

  TUTTI_DEVICE void run(Watch& watch) const {
    if (threadIdx.x == 0) prepare_mapped<type>(common_, {0, arguments_.columns}, shared_.work);
    bool failed = watch.why != Why::kNothing || !meet_peers(common_, watch);
    const Sum sum(common_, shared_.work, watch, failed);
    const plan::Range rows = plan::piece_of(arguments_.rows, common_.ranks, common_.rank, 1);
    for (std::uint64_t row = blockIdx.x; row < rows.count; row += gridDim.x) {
      const std::uint64_t offset = (rows.offset + row) * arguments_.columns * size_of(type);
      // A thread that passed the second barrier of the row before reads none of this any more.
      if (threadIdx.x == 0) locate(offset);
      if (sync_block_or(failed)) return;
      const float squares = warp_sum(add_residual(sum, offset));
      if (threadIdx.x % kWarpLanes == 0) shared_.squares[threadIdx.x / kWarpLanes] = squares;
      if (sync_block_or(false)) return;
      normalise(offset, block_sum());
    }
    if (sync_block_or(failed)) return;
    meet_peers(common_, watch);
  }

 private:
  TUTTI_DEVICE void locate(std::uint64_t offset) const {
    for (unsigned rank = 0; rank < common_.ranks; ++rank) {
      shared_.work.locations[rank].at = const_cast<std::byte*>(common_.peer_inputs[rank]) + offset;
    }
  }

  /// The row's new residual, in all ranks; the sum of this thread's squares of it.
  TUTTI_DEVICE float add_residual(const Sum& sum, std::uint64_t offset) const {
    float squares = 0;
    for_each_unit<kElements>(shared_.work, 0, [&](const Position& position) {
      if (position.valid == 0) return;
      const std::uint64_t at = offset + std::uint64_t{position.unit} * kBytes;
      Values value = Compute::widened(Compute::stored(sum.reduce(position)));
      const Values residual =
          Compute::widened(load_whole<kBytes>(arguments_.residuals[common_.rank] + at));
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) value.of[e] = residual.of[e] + value.of[e];
      const Bits<kBytes> bits = Compute::stored(value);
      value = Compute::widened(bits);
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) squares += value.of[e] * value.of[e];
      for (unsigned rank = 0; rank < common_.ranks; ++rank) {
        store_whole(arguments_.residuals[rank] + at, bits);
      }
    });
    return squares;
  }

  TUTTI_DEVICE static float warp_sum(float value) {
#pragma unroll
    for (unsigned apart = kWarpLanes / 2; apart > 0; apart /= 2) {
      value += __shfl_xor_sync(~0u, value, static_cast<int>(apart));
    }
    return value;
  }
  TUTTI_DEVICE float block_sum() const {
    float sum = shared_.squares[0];
    for (unsigned warp = 1; warp < blockDim.x / kWarpLanes; ++warp) sum += shared_.squares[warp];
    return sum;
  }

  /// A thread reads again the part of the residual that it wrote itself.
  TUTTI_DEVICE void normalise(std::uint64_t offset, float squares) const {
    const float mean = squares / static_cast<float>(arguments_.columns);
    const float factor = 1 / sqrtf(mean + arguments_.epsilon);
    for_each_unit<kElements>(shared_.work, 0, [&](const Position& position) {
      if (position.valid == 0) return;
      const std::uint64_t column = std::uint64_t{position.unit} * kBytes, at = offset + column;
      Values value = Compute::widened(load_whole<kBytes>(arguments_.residuals[common_.rank] + at));
      const Values weight = Compute::widened(load_whole<kBytes>(arguments_.weight + column));
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) {
        value.of[e] = value.of[e] * factor * weight.of[e];
      }
      const Bits<kBytes> bits = Compute::stored(value);
      for (unsigned rank = 0; rank < common_.ranks; ++rank) {
        store_whole(common_.peer_outputs[rank] + at, bits);
      }
    });
  }

  const RmsNormArguments& arguments_;
  const Arguments& common_;
  Shared& shared_;
};

template <DataType type>
__global__ void __launch_bounds__(kMostThreads, 1)
    rms_norm(const __grid_constant__ RmsNormArguments arguments) {
  __shared__ typename RmsNorm<type>::Shared shared;
  const RmsNorm<type> one(arguments, shared);
  run_call(arguments.common, [&](Watch& watch) { one.run(watch); });
}

}  // namespace tutti::cuda
