#include "program_kernels.h"

#include "tutti/device.cuh"

namespace tutti::test {
namespace {

using device::Channel;
using device::Threads;

/// All threads of the block: tells one rank, and waits for another one.
TUTTI_DEVICE bool tell_and_wait(Channel& channel, unsigned told, unsigned awaited) {
  bool good = channel.sync();
  if (good && threadIdx.x == 0) {
    channel.signal(told);
    good = channel.wait(awaited);
  }
  return channel.sync(good);
}

__global__ void pass_on(const __grid_constant__ ProgramCall call) {
  Channel channel(call.handle);
  const unsigned me = channel.rank(), ranks = channel.ranks();
  const unsigned next = (me + 1) % ranks, before = (me + ranks - 1) % ranks;
  const std::uint64_t at = blockIdx.x * call.count;
  for (unsigned round = 0; round < call.rounds; ++round) {
    channel.put(next, at, call.data + at, call.count);
    if (!tell_and_wait(channel, next, before)) return;
    const auto* came = channel.peer<std::uint8_t>(me, at, call.count);
    for (std::uint64_t i = threadIdx.x; i < call.count; i += blockDim.x)
      cuda::store(call.data + at + i, cuda::load<std::uint8_t>(came + i));
    // There is room for the next round.
    if (!tell_and_wait(channel, before, next)) return;
  }
}

/// One of `parts` parts of `count`, and where it begins.
struct Part {
  std::uint64_t first, count;
};
TUTTI_DEVICE Part part_of(Part all, std::uint64_t index, std::uint64_t parts) {
  const std::uint64_t each = (all.count + parts - 1) / parts;
  const std::uint64_t first = index * each < all.count ? index * each : all.count;
  const std::uint64_t left = all.count - first;
  return {all.first + first, left < each ? left : each};
}

template <DataType type, ReduceOp op>
__global__ void reduce(const __grid_constant__ ProgramCall call) {
  constexpr std::uint64_t kSize = size_of(type);
  Channel channel(call.handle);
  const Part mine = part_of({0, call.count}, blockIdx.x, gridDim.x);
  channel.put(channel.rank(), mine.first * kSize, call.data + mine.first * kSize,
              mine.count * kSize);
  if (!channel.barrier()) return;
  // Warps share the block's part.
  const std::uint64_t warps = blockDim.x / cuda::kWarpLanes;
  const Part warp = part_of(mine, threadIdx.x / cuda::kWarpLanes, warps);
  channel.reduce<type, op>(warp.first * kSize, warp.count, call.result + warp.first * kSize,
                           Threads::of_warp());
  const Part share = part_of(mine, channel.rank(), channel.ranks());
  channel.reduce_to_all<type, op>(share.first * kSize, share.count,
                                  second_half(call.count * kSize) + share.first * kSize);
  channel.barrier();
}

__global__ void meet(const __grid_constant__ ProgramCall call) {
  Channel channel(call.handle);
  const auto count = [&](unsigned rank, unsigned of) {
    return channel.peer<std::uint32_t>(rank, std::uint64_t{4} * of);
  };
  for (unsigned round = 0; round < call.rounds; ++round) {
    for (unsigned rank = threadIdx.x; rank < channel.ranks(); rank += blockDim.x)
      cuda::store(count(rank, channel.rank()), round + 1);
    if (!channel.barrier()) return;
    bool good = true;
    for (unsigned rank = threadIdx.x; rank < channel.ranks(); rank += blockDim.x)
      good &= cuda::load<std::uint32_t>(count(channel.rank(), rank)) == round + 1;
    if (!channel.sync(good)) return;
    if (!channel.barrier()) return;
  }
  if (threadIdx.x == 0) cuda::store(call.result, call.rounds);
}

__global__ void await(const __grid_constant__ ProgramCall call) {
  Channel channel(call.handle);
  const bool good = threadIdx.x != 0 || channel.wait(call.peer);
  channel.sync(good);
}

__global__ void put(const __grid_constant__ ProgramCall call) {
  Channel channel(call.handle);
  channel.put(call.peer, 64, call.data, call.count);
}

__global__ void ask(const __grid_constant__ ProgramCall call) {
  Channel channel(call.handle);
  channel.peer<double>(call.peer, 64, call.count);
}

}  // namespace

const void* pass_on_kernel() { return TUTTI_KERNEL_HANDLE(pass_on); }
const void* meet_kernel() { return TUTTI_KERNEL_HANDLE(meet); }
const void* await_kernel() { return TUTTI_KERNEL_HANDLE(await); }
const void* put_kernel() { return TUTTI_KERNEL_HANDLE(put); }
const void* ask_kernel() { return TUTTI_KERNEL_HANDLE(ask); }

const void* reduce_kernel(DataType type, ReduceOp op) {
  const auto is = [&](unsigned index) {
    return kProgramReductions[index].type == type && kProgramReductions[index].op == op;
  };
#define TUTTI_REDUCTION(index) \
  if (is(index))               \
  return TUTTI_KERNEL_HANDLE(reduce<kProgramReductions[index].type, kProgramReductions[index].op>)
  TUTTI_REDUCTION(0);
  TUTTI_REDUCTION(1);
  TUTTI_REDUCTION(2);
  TUTTI_REDUCTION(3);
  TUTTI_REDUCTION(4);
  TUTTI_REDUCTION(5);
#undef TUTTI_REDUCTION
  return nullptr;
}

}  // namespace tutti::test
