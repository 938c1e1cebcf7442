// File: cuda/comm/reach.h: tries with data whether a rank's kernels reach the memory of the others
// on its host (kernels/cuda/reach.h).
//
// Each rank opens the others' samples, and its kernel writes a pattern to its line of each. Once
// all have done so, each rank looks which patterns have reached its own sample.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "cuda/comm/links.h"

namespace tutti {

/// A line of a sample for each rank, in bytes.
inline constexpr std::size_t kSampleLine = 128;
inline constexpr std::size_t kSampleBytes = kSampleLine * cuda::kMostDeviceRanks;

/// Writes to the samples of the ranks whose links are better than by the host. A sample that can't
/// be opened becomes a refusal, and its link one by the host.
Status write_to_samples(DeviceRank& self, const std::vector<DeviceInfo>& all,
                        std::vector<planner::DeviceLink>& links);

/// The ranks, of those `expected`, whose pattern did not reach this rank's sample. Call
/// look_at_sample after all ranks have written.
struct LostWrites {
  ExchangedStatus status;
  std::array<bool, cuda::kMostDeviceRanks> from = {};  // By rank.
};
Result<LostWrites> look_at_sample(const DeviceRank& self, const std::vector<bool>& expected);

}  // namespace tutti
