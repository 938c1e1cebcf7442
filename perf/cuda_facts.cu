// The kernels of the probe (cuda_facts.h).
#include "perf/cuda_facts.h"

#include "tutti/detail/device_common.h"
#include "tutti/detail/prim.h"

namespace tutti::facts {
namespace {

using namespace cuda;

/// False: it gave up.
TUTTI_DEVICE bool wait_for(const std::uint64_t* flag, std::uint64_t value, std::uint64_t patience) {
  const std::uint64_t begin = now_ns();
  // acquire: as kernels wait for a slot.
  while (load_acquire(flag) < value) {
    if (now_ns() - begin > patience) return false;
  }
  return true;
}

__global__ void empty(const __grid_constant__ Arguments) {}

__global__ void spin(const __grid_constant__ Arguments arguments) {
  wait_for(arguments.mine, 1, arguments.patience);
}

__global__ void ping_pong(const __grid_constant__ Arguments arguments) {
  const bool begins = arguments.to == nullptr;
  for (std::uint64_t round = 1; round <= arguments.count; ++round) {
    // release: as kernels pass a slot.
    if (begins) store_release(arguments.theirs, round);
    if (!wait_for(arguments.mine, round, arguments.patience)) return;
    if (!begins) store_release(arguments.theirs, round);
  }
}

__global__ void chase(const __grid_constant__ Arguments arguments) {
  std::uint64_t at = 0;
  // relaxed: past L1, as other devices' data are read.
  for (std::uint64_t i = 0; i < arguments.count; ++i)
    at = load_relaxed(reinterpret_cast<const std::uint64_t*>(arguments.from + at));
  store_relaxed(arguments.theirs, at);  // So that the loads are needed.
}

/// As many loads under way as the interpreter has (body.h).
TUTTI_DEVICE void copy_tile(const Arguments& arguments) {
  constexpr unsigned kInFlight = 8;
  const std::uint64_t stride = std::uint64_t{blockDim.x} * sizeof(Vector16);
  for (std::uint64_t at = threadIdx.x * sizeof(Vector16); at < arguments.bytes;
       at += kInFlight * stride) {
    Vector16 data[kInFlight];
#pragma unroll
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (at + i * stride < arguments.bytes)
        data[i] = load<Vector16>(arguments.from + at + i * stride);
    }
#pragma unroll
    for (unsigned i = 0; i < kInFlight; ++i) {
      if (at + i * stride < arguments.bytes) store(arguments.to + at + i * stride, data[i]);
    }
  }
}

__global__ void __launch_bounds__(kThreads, 1) copy(const __grid_constant__ Arguments arguments) {
  for (std::uint64_t i = 0; i < arguments.count; ++i) {
    copy_tile(arguments);
    if (sync_block_or(false)) return;
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    release(const __grid_constant__ Arguments arguments) {
  for (std::uint64_t i = 0; i < arguments.count; ++i) {
    copy_tile(arguments);
    if (sync_block_or(false)) return;
    // release: as a slot is passed on.
    if (threadIdx.x == 0) store_release(arguments.theirs, i + 1);
  }
}

/// Each warp has 4 lines of its own in `to`. One block writes them, the other one looks for halves.
__global__ void __launch_bounds__(kThreads, 1) lines(const __grid_constant__ Arguments arguments) {
  const unsigned lane = threadIdx.x % kWarpLanes, warp = threadIdx.x / kWarpLanes;
  const bool writes = arguments.from == nullptr, flag_lane = lane % 8 == 7;
  std::byte* const at = arguments.to + threadIdx.x * sizeof(Vector16);
  std::uint64_t* const mine = arguments.mine + warp * 16;
  std::uint64_t torn = 0;
  bool gave_up = false;
  for (std::uint64_t round = 1; round <= arguments.count && !gave_up; ++round) {
    const auto word = static_cast<std::uint32_t>(round);
    if (writes) {
      store_line(at, {{word, word, word, word}}, flag_lane, round);
      // All lanes of the warp go on once one of them has seen that the line was read.
      const bool read = lane != 0 || wait_for(mine, round, arguments.patience);
      gave_up = __any_sync(~0u, read ? 0 : 1) != 0;
      continue;
    }
    Vector16 data = {};
    const std::uint64_t begin = now_ns();
    while (!gave_up && !load_line(at, flag_lane, round, data))
      gave_up = __any_sync(~0u, now_ns() - begin > arguments.patience ? 1 : 0) != 0;
    bool whole = true;
    for (const std::uint32_t found : data.word) whole &= flag_lane || found == word;
    torn += whole ? 0 : 1;
    __syncwarp();
    // release: the warp's loads are over before the line is written anew.
    if (lane == 0) store_release(arguments.theirs + warp * 16, round);
  }
  // What the host reads; a writer has none. A line that never came counts as well.
  if (!writes) store(arguments.from + threadIdx.x * sizeof torn, torn + (gave_up ? 1 : 0));
}

}  // namespace

const void* empty_kernel() { return TUTTI_KERNEL_HANDLE(empty); }
const void* spin_kernel() { return TUTTI_KERNEL_HANDLE(spin); }
const void* ping_pong_kernel() { return TUTTI_KERNEL_HANDLE(ping_pong); }
const void* chase_kernel() { return TUTTI_KERNEL_HANDLE(chase); }
const void* copy_kernel() { return TUTTI_KERNEL_HANDLE(copy); }
const void* lines_kernel() { return TUTTI_KERNEL_HANDLE(lines); }
const void* release_kernel() { return TUTTI_KERNEL_HANDLE(release); }

}  // namespace tutti::facts
