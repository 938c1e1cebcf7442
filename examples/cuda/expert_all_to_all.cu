// A layer of experts, one on each rank: tokens go to the rank of their expert (dispatch), and what
// the expert makes of them comes back (combine). Which expert a token takes, and so how many tokens
// ranks exchange, only the device knows. One kernel does it all, with a block for each peer.
//
//   nvcc -std=c++20 -O3 --expt-relaxed-constexpr examples/cuda/expert_all_to_all.cu -ltutti
//   tutti run -n 8 -- ./a.out
//
// Without GPUs, with PREFIX where Tutti is installed:
//
//   PREFIX/lib/tutti/simulated/cuda/bin/nvcc -std=c++20 -O3 --expt-relaxed-constexpr
//       examples/cuda/expert_all_to_all.cu -ltutti
//   tutti run --simulated-gpus 4 -n 4 -- ./a.out
#include <tutti/device.cuh>

#include "example.h"

using tutti::device::Channel;

constexpr unsigned kTokens = 40, kWidth = 64, kThreads = 64;  // Tokens of a rank, at most.
constexpr std::uint64_t kRow = kWidth * sizeof(float), kRows = kTokens * kRow;

/// Where things are in each rank's window, by peer: how many tokens came, these, and what came
/// back.
struct Layout {
  unsigned ranks;
  TUTTI_DEVICE std::uint64_t count_from(unsigned peer) const { return peer * 16; }
  TUTTI_DEVICE std::uint64_t tokens_from(unsigned peer) const { return ranks * 16 + peer * kRows; }
  TUTTI_DEVICE std::uint64_t results_from(unsigned peer) const {
    return tokens_from(ranks) + peer * kRows;
  }
  std::size_t bytes() const { return ranks * (16 + 2 * kRows); }
};

struct Layer {
  const float* tokens;
  float* results;
  unsigned count;
};

TUTTI_DEVICE unsigned expert_of(const float* token, unsigned ranks) {
  const auto key = static_cast<unsigned>(token[0]);
  return key * key % ranks;
}

/// All threads: the peer has what this block wrote, and this rank what the peer's block wrote.
TUTTI_DEVICE bool exchange(Channel& channel, unsigned peer) {
  bool good = channel.sync();
  if (good && threadIdx.x == 0) {
    channel.signal(peer);
    good = channel.wait(peer);
  }
  return channel.sync(good);
}

__global__ void layer_of_experts(const __grid_constant__ tutti::DeviceHandle handle, Layer layer) {
  Channel channel(handle, 0);  // Each block has the signals of its peer for itself.
  const unsigned peer = blockIdx.x, me = channel.rank();
  const Layout layout{channel.ranks()};
  // Dispatch.
  unsigned sent = 0;
  for (unsigned token = 0; token < layer.count; ++token) {
    const float* const row = layer.tokens + token * kWidth;
    if (expert_of(row, channel.ranks()) == peer)
      channel.put(peer, layout.tokens_from(me) + sent++ * kRow, row, kRow);
  }
  if (threadIdx.x == 0) *channel.peer<unsigned>(peer, layout.count_from(me)) = sent;
  if (!exchange(channel, peer)) return;
  // This rank's expert, on the tokens of the peer.
  const unsigned came = *channel.peer<unsigned>(me, layout.count_from(peer));
  const float* const tokens = channel.peer<float>(me, layout.tokens_from(peer));
  float* const results = channel.peer<float>(peer, layout.results_from(me));
  for (unsigned i = threadIdx.x; i < came * kWidth; i += blockDim.x)
    results[i] = tokens[i] * static_cast<float>(me + 1) + static_cast<float>(i % kWidth);
  if (!exchange(channel, peer)) return;
  // Combine.
  const float* returned = channel.peer<float>(me, layout.results_from(peer));
  for (unsigned token = 0; token < layer.count; ++token) {
    if (expert_of(layer.tokens + token * kWidth, channel.ranks()) != peer) continue;
    for (unsigned i = threadIdx.x; i < kWidth; i += blockDim.x)
      layer.results[token * kWidth + i] = returned[i] / 2;
    returned += kWidth;
  }
}

int main() {
  Example example;
  const auto rank = static_cast<unsigned>(example.comm.rank().value);
  const Layout layout{static_cast<unsigned>(example.comm.rank_count())};
  tutti::DeviceHandle handle = example.open(layout.bytes(), 1);
  for (unsigned round = 0; round < 3; ++round) {
    const unsigned count = kTokens - (rank * 7 + round * 11) % kTokens;
    std::vector<float> tokens(count * kWidth);
    for (unsigned i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<float>((i / kWidth * 5 + i % kWidth + rank * 3 + round) % 97);
    Layer layer{device_copy(tokens), device_copy(std::vector<float>(tokens.size())), count};
    void* arguments[] = {&handle, &layer};
    example.launch(TUTTI_KERNEL_HANDLE(layer_of_experts), layout.ranks, kThreads, arguments);
    example.finish();
    const auto results = host_copy<float>(layer.results, tokens.size());
    for (unsigned i = 0; i < results.size(); ++i) {
      const auto key = static_cast<unsigned>(tokens[i / kWidth * kWidth]);
      const unsigned expert = key * key % layout.ranks;
      const float want =
          (tokens[i] * static_cast<float>(expert + 1) + static_cast<float>(i % kWidth)) / 2;
      require(results[i] == want, "another result, of token " + std::to_string(i / kWidth));
    }
  }
  example.close();
  std::printf("rank %u of %u: 3 layers, right\n", rank, layout.ranks);
}
