#include "cuda/comm/reach.h"

#include <cstring>

#include "base/hash.h"
#include "cuda/driver/kernels.h"
#include "kernels/cuda/reach.h"

namespace tutti {
namespace {

/// What a rank of the communicator writes; not 0.
std::uint64_t pattern_of(std::uint64_t token, std::size_t rank) {
  return Hash().add(token).add(rank).value() | 1;
}

}  // namespace

Status write_to_samples(DeviceRank& self, const std::vector<DeviceInfo>& all,
                        std::vector<planner::DeviceLink>& links) {
  cuda::ReachArguments arguments;
  arguments.pattern = pattern_of(self.token, self.index());
  std::vector<exec::CudaImport> opened;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (rank == self.index() || links[rank] >= planner::DeviceLink::kHost) continue;
    auto sample = exec::CudaImport::open(self.device, all[rank].sample,
                                         Deadline::after(self.settings.timeout));
    if (!sample) {
      self.refusals[rank] = "its memory can't be opened: " + sample.error().what;
      links[rank] = planner::DeviceLink::kHost;
      continue;
    }
    std::byte* const line = sample->data() + self.index() * kSampleLine;
    arguments.lines[rank] = reinterpret_cast<std::uint64_t*>(line);
    opened.push_back(std::move(*sample));
  }
  if (opened.empty()) return ok();
  TUTTI_RETURN_IF_ERROR(exec::load_kernels(self.device));
  return exec::do_at_once(self.device, "writing to the memory of other ranks", [&](auto stream) {
    void* list[] = {&arguments};
    return cudaLaunchKernel(cuda::reach_kernel(), dim3(1), dim3(cuda::kMostDeviceRanks), list, 0,
                            stream);
  });
}

Result<LostWrites> look_at_sample(const DeviceRank& self, const std::vector<bool>& expected) {
  LostWrites lost;
  std::array<std::byte, kSampleBytes> sample;
  TUTTI_RETURN_IF_ERROR(self.sample.memory.read(0, sample.data(), sample.size()));
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    if (!expected[rank]) continue;
    std::uint64_t found = 0;
    std::memcpy(&found, sample.data() + rank * kSampleLine, sizeof found);
    lost.from[rank] = found != pattern_of(self.token, rank);
  }
  return lost;
}

}  // namespace tutti
