// A matrix product whose inner dimension is split over ranks, as in the tensor-parallel halves of a
// transformer's layer: C = sum over ranks of A_rank * B_rank, on all ranks. One kernel computes the
// partial product and reduces it: a tile is reduced while later tiles are computed. The result has
// the bits of the library's all-reduce.
//
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr examples/cuda/gemm_all_reduce.cu -ltutti
//   tutti run -n 8 -- ./a.out
//
// Without GPUs, with PREFIX where Tutti is installed:
//
//   PREFIX/lib/tutti/simulated/cuda/bin/nvcc -std=c++20 -O3 --expt-relaxed-constexpr
//       examples/cuda/gemm_all_reduce.cu -ltutti
//   tutti run --simulated-gpus 4 -n 4 -- ./a.out
#include <tutti/device.cuh>

#include <cmath>

#include "example.h"

using tutti::DataType, tutti::ReduceOp, tutti::device::Channel;

constexpr unsigned kTile = 16, kTileElements = kTile * kTile, kBlocks = 8;
constexpr unsigned kRows = 128, kColumns = 96, kInner = 40;  // Of A, of B, and of both on a rank.
constexpr unsigned kTilesAcross = kColumns / kTile, kTiles = kRows / kTile * kTilesAcross;
// The window: this rank's partial product, then the result; tile by tile.
constexpr std::uint64_t kTileBytes = kTileElements * sizeof(float), kResult = kTiles * kTileBytes;

struct Matrices {
  const float* a;  // kRows x kInner
  const float* b;  // kInner x kColumns
};

/// This rank's part of a tile, an element by each thread.
TUTTI_DEVICE float multiply(const Matrices& matrices, unsigned tile) {
  const unsigned row = tile / kTilesAcross * kTile + threadIdx.x / kTile;
  const unsigned column = tile % kTilesAcross * kTile + threadIdx.x % kTile;
  float sum = 0;
  for (unsigned k = 0; k < kInner; ++k)
    sum = fmaf(matrices.a[row * kInner + k], matrices.b[k * kColumns + column], sum);
  return sum;
}

/// The tile's owner reduces it once all ranks have signalled, and writes it to all of them.
TUTTI_DEVICE bool reduce(Channel& channel, unsigned tile) {
  if (tile % channel.ranks() != channel.rank()) return true;
  bool good = true;
  for (unsigned rank = threadIdx.x; rank < channel.ranks(); rank += blockDim.x)
    good &= channel.wait(rank);
  if (!channel.sync(good)) return false;
  return channel.reduce_to_all<DataType::kFloat32, ReduceOp::kSum>(tile * kTileBytes, kTileElements,
                                                                   kResult + tile * kTileBytes);
}

__global__ void gemm_all_reduce(const __grid_constant__ tutti::DeviceHandle handle,
                                Matrices matrices) {
  Channel channel(handle);
  for (unsigned tile = blockIdx.x; tile < kTiles + gridDim.x; tile += gridDim.x) {
    if (tile < kTiles) {
      float* const to = channel.peer<float>(channel.rank(), tile * kTileBytes, kTileElements);
      if (to == nullptr) return;
      to[threadIdx.x] = multiply(matrices, tile);
      channel.sync();  // The whole tile is there.
      if (threadIdx.x == 0) channel.signal(tile % channel.ranks());
    }
    // The tile before: its other parts have come while this one was computed.
    if (tile >= gridDim.x && !reduce(channel, tile - gridDim.x)) return;
  }
  channel.barrier();  // All results are there, and no rank reads this one's window any more.
}

int main() {
  Example example;
  const int rank = example.comm.rank().value;
  const tutti::DeviceHandle handle = example.open(2 * kResult, kBlocks);
  std::vector<float> a(kRows * kInner), b(kInner * kColumns);
  for (unsigned i = 0; i < a.size(); ++i) a[i] = std::sin(static_cast<float>(i + rank * 1000));
  for (unsigned i = 0; i < b.size(); ++i) b[i] = std::cos(static_cast<float>(i + rank * 2000));
  Matrices matrices{device_copy(a), device_copy(b)};
  tutti::DeviceHandle argument = handle;
  void* arguments[] = {&argument, &matrices};
  example.launch(TUTTI_KERNEL_HANDLE(gemm_all_reduce), kBlocks, kTileElements, arguments);
  example.finish();

  // The same by the library's all-reduce of the partial products.
  constexpr std::size_t kCount = kRows * kColumns;
  float* const sums = device_copy(std::vector<float>(kCount));
  require(example.comm.call({.collective = tutti::Collective::kAllReduce,
                             .input = example.window,
                             .output = sums,
                             .count = kCount,
                             .type = DataType::kFloat32},
                            example.stream));
  example.finish();
  const auto partial = host_copy<float>(example.window, kCount);
  const auto result = host_copy<std::uint32_t>(example.window + kResult, kCount);
  require(result == host_copy<std::uint32_t>(sums, kCount), "other bits than the library's");
  float first = 0;
  for (unsigned k = 0; k < kInner; ++k) first = std::fmaf(a[k], b[k * kColumns], first);
  require(partial[0] == first, "another product than the host's");
  example.close();
  std::printf("rank %d of %d: %u tiles, right\n", rank, example.comm.rank_count(), kTiles);
}
