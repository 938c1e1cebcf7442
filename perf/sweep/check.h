// File: sweep/check.h: data that betrays lost, doubled and misplaced elements, and its
// verification.
//
// Values depend on rank and index through a hash, and are small integers whose reduction is exact
// in any order, computed here in integers and doubles: independent of the kernels. With
// Check::kBits they are arbitrary reals, and the answer is the canonical reference's, to the last
// bit.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "perf/sweep/options.h"

namespace tutti::perf {

/// One measurement, as every rank sees it. `count` is that of the call (see Collective).
struct Shape {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  int ranks = 1;
  int root = 0;
  std::size_t input_elements() const {
    return traits_of(collective).input_each ? count * static_cast<std::size_t>(ranks) : count;
  }
  std::size_t output_elements() const {
    return traits_of(collective).output_each ? count * static_cast<std::size_t>(ranks) : count;
  }
  /// As nccl-tests counts: the larger of what a rank gives and gets.
  std::size_t bytes() const {
    return std::max(input_elements(), output_elements()) * size_of(type);
  }
};

/// The pre-multiplier of a rank.
inline double scale_of(int rank) { return 1 + rank % 3; }

/// Fills a rank's input.
void fill(const Shape& shape, Check check, int rank, std::uint64_t seed, std::byte* input);
/// Elements of `rank`'s output that are wrong.
std::size_t count_wrong(const Shape& shape, Check check, int rank, std::uint64_t seed,
                        const std::byte* output);

/// The same of a call with a wire: how far the worst element is off, and how far one may be.
struct Deviation {
  double largest = 0, allowed = 0;
};
Deviation deviation_of(const Shape& shape, const Wire& wire, int rank, std::uint64_t seed,
                       const std::byte* output);

}  // namespace tutti::perf
