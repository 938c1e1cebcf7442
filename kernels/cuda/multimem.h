// File: kernels/cuda/multimem.h: collectives on multicast memory (NVLink SHARP): the switch adds
// what ranks have, and copies what one of them stores.
//
//   all-reduce      each rank reduces its piece, and stores the result once, to all
//   reduce-scatter  each rank reads the sum of its block
//   all-gather      each rank stores its block once, to all
//   broadcast       the root stores once, to all
//
// The switch adds in an order of its own, so its sums are of the relaxed contract. Where that is
// not allowed a rank reads what all have, in canonical order, and only stores by the switch. It
// stands for `two_shot` or `direct`.
//
// A buffer is in multicast memory itself, or it is staged: a block copies a tile of it into
// multicast memory of its own, and results out of that. There are two tiles' places, so that ranks
// meet once a tile: while a rank copies the next tile in, or the last one out, others reduce.
//
//   copy in(0) | reduce(0) copy in(1) | copy out(0) reduce(1) copy in(2) | copy out(1) ...
//
// Each | is a meeting of the blocks of one number. A rank that reduces tile t + 2 into the place of
// tile t has met all ranks after they copied that out; likewise for what is copied in.
#pragma once
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/fused.h"
#include "kernels/cuda/meeting.h"
#include "plan/partition.h"

namespace tutti::cuda {

inline constexpr std::size_t kVectorBytes = sizeof(Vector16);

TUTTI_DEVICE bool is_whole(const std::byte* at, std::uint64_t left) {
  return left >= kVectorBytes && reinterpret_cast<std::uintptr_t>(at) % kVectorBytes == 0;
}
/// Up to 16 bytes at any address: as many as there are left. Others are 0.
TUTTI_DEVICE Vector16 load_some(const std::byte* at, std::uint64_t left) {
  if (is_whole(at, left)) return load<Vector16>(at);
  Vector16 some = {};
#pragma unroll
  for (unsigned i = 0; i < kVectorBytes; ++i) {
    if (i < left) some.word[i / 4] |= std::uint32_t{load<std::uint8_t>(at + i)} << (i % 4 * 8);
  }
  return some;
}
TUTTI_DEVICE void store_some(std::byte* at, std::uint64_t left, Vector16 data) {
  if (is_whole(at, left)) return store(at, data);
#pragma unroll
  for (unsigned i = 0; i < kVectorBytes; ++i) {
    if (i < left) store(at + i, static_cast<std::uint8_t>(data.word[i / 4] >> (i % 4 * 8)));
  }
}

/// Calls `put(at, get(at))` for the thread's 16-byte vectors of a run of bytes; `kBatch` of them
/// are under way at a time.
template <unsigned kBatch, class Get, class Put>
TUTTI_DEVICE void for_each_vector(std::uint64_t bytes, Get get, Put put) {
  const std::uint64_t stride = blockDim.x * kVectorBytes;
#pragma unroll 1  // A canonical sum would spill registers.
  for (std::uint64_t first = threadIdx.x * kVectorBytes; first < bytes; first += kBatch * stride) {
    Vector16 vectors[kBatch];
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * stride < bytes) vectors[i] = get(first + i * stride);
    }
#pragma unroll
    for (unsigned i = 0; i < kBatch; ++i) {
      if (first + i * stride < bytes) put(first + i * stride, vectors[i]);
    }
  }
}

/// The sums of a switch.
template <DataType type>
struct SwitchSum {
  static constexpr bool kScatters = true;  // Whether it is for reduce-scatters, too.
  static constexpr unsigned kBatch = 2;
  TUTTI_DEVICE static Vector16 at(const MultimemArguments& arguments, std::uint64_t offset) {
    return multimem_add<type>(arguments.input.multicast + offset);
  }
};
/// What all ranks have, reduced here in canonical order.
template <DataType type>
struct CanonicalSum {
  using Compute = Arithmetic<type, ReduceOp::kSum>;
  static_assert(Compute::kBytes == kVectorBytes);
  static constexpr bool kScatters = false;
  static constexpr unsigned kBatch = 1;  // Each is a vector of each rank.
  TUTTI_DEVICE static Vector16 at(const MultimemArguments& arguments, std::uint64_t offset) {
    const Arguments& common = arguments.common;
    typename Compute::Tree tree;
    constexpr unsigned kAtOnce = 4;  // With more, registers are spilled.
#pragma unroll 1
    for (unsigned first = 0; first < common.ranks; first += kAtOnce) {
      Bits<kVectorBytes> bits[kAtOnce];
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (first + i < common.ranks)
          bits[i] = load<Bits<kVectorBytes>>(common.peer_inputs[first + i] + offset);
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (first + i < common.ranks) tree.add(first + i, Compute::widened(bits[i]));
      }
    }
    const auto sum = Compute::rounded(common, tree.root(common.ranks), true);
    return {{sum.word[0], sum.word[1], sum.word[2], sum.word[3]}};
  }
};
/// For collectives that reduce nothing.
struct NoSum {
  static constexpr bool kScatters = false;
  static constexpr unsigned kBatch = 2;
  TUTTI_DEVICE static Vector16 at(const MultimemArguments&, std::uint64_t) { return {}; }
};

template <class Sum>
class Multimem {
 public:
  TUTTI_DEVICE Multimem(const MultimemArguments& arguments, Watch& watch)
      : arguments_(arguments),
        common_(arguments.common),
        share_(plan::piece_of(arguments.bytes, gridDim.x, blockIdx.x, kTileGrain)),
        watch_(watch) {}

  TUTTI_DEVICE void run() {
    const std::uint64_t tiles = (share_.count + arguments_.tile_bytes - 1) / arguments_.tile_bytes;
    if (tiles != 0) copy_in(tile_at(0));
    if (!meet()) return;
#pragma unroll 1
    for (std::uint64_t tile = 0; tile < tiles; ++tile) {
      exchange(tile_at(tile));
      if (tile + 1 < tiles) copy_in(tile_at(tile + 1));
      if (!meet()) return;
      copy_out(tile_at(tile));
    }
  }

 private:
  /// A part of each block of the message.
  struct Tile {
    std::uint64_t begin, bytes, turn;
  };
  TUTTI_DEVICE Tile tile_at(std::uint64_t tile) const {
    const std::uint64_t begin = tile * arguments_.tile_bytes, left = share_.count - begin;
    return {share_.offset + begin, left < arguments_.tile_bytes ? left : arguments_.tile_bytes,
            tile % 2};
  }
  /// Where a tile of a block of the message is in the multicast memory of a side.
  TUTTI_DEVICE std::uint64_t place_of(const MultimemSide& side, const Tile& tile,
                                      unsigned block) const {
    if (!side.staged) return block * arguments_.bytes + tile.begin;
    return (tile.turn * gridDim.x + blockIdx.x) * arguments_.area_bytes +
           block * arguments_.tile_bytes;
  }
  TUTTI_DEVICE bool is(Collective collective) const { return arguments_.collective == collective; }

  /// False: the block gives up. What its threads did comes before what peers do then.
  TUTTI_DEVICE bool meet() {
    if (sync_block_or(watch_.why != Why::kNothing)) return false;
    // What was written by one address of a memory is read by another one. One fence on the way from
    // the one to the other is enough, so it is here, before the signals.
    if (threadIdx.x < kWarpLanes) fence_alias();
    return !sync_block_or(!meet_peers(common_, watch_));
  }

  TUTTI_DEVICE void copy_in(const Tile& tile) const {
    if (!arguments_.input.staged) return;
    const unsigned blocks = is(Collective::kReduceScatter) ? common_.ranks : 1;
#pragma unroll 1
    for (unsigned block = 0; block < blocks; ++block) {
      const std::byte* const from = common_.input + block * arguments_.bytes + tile.begin;
      std::byte* const to = arguments_.input.own + place_of(arguments_.input, tile, block);
      for_each_vector<2>(
          tile.bytes, [&](std::uint64_t at) { return load_some(from + at, tile.bytes - at); },
          [&](std::uint64_t at, Vector16 data) { store(to + at, data); });
    }
  }

  TUTTI_DEVICE void copy_out(const Tile& tile) const {
    if (!arguments_.output.staged) return;
    const unsigned blocks = is(Collective::kAllGather) ? common_.ranks : 1;
#pragma unroll 1
    for (unsigned block = 0; block < blocks; ++block) {
      const std::byte* const from =
          arguments_.output.own + place_of(arguments_.output, tile, block);
      std::byte* const to = common_.output + block * arguments_.bytes + tile.begin;
      for_each_vector<2>(
          tile.bytes, [&](std::uint64_t at) { return load<Vector16>(from + at); },
          [&](std::uint64_t at, Vector16 data) { store_some(to + at, tile.bytes - at, data); });
    }
  }

  /// This rank's part of what is reduced, or sent.
  TUTTI_DEVICE void exchange(const Tile& tile) const {
    if (is(Collective::kAllReduce)) {
      const plan::Range piece = plan::piece_of(tile.bytes, common_.ranks, common_.rank, kTileGrain);
      const std::uint64_t from = place_of(arguments_.input, tile, 0) + piece.offset;
      std::byte* const to =
          arguments_.output.multicast + place_of(arguments_.output, tile, 0) + piece.offset;
      for_each_vector<Sum::kBatch>(
          piece.count, [&](std::uint64_t at) { return Sum::at(arguments_, from + at); },
          [&](std::uint64_t at, Vector16 data) { multimem_store(to + at, data); });
    } else if (Sum::kScatters && is(Collective::kReduceScatter)) {
      const std::uint64_t from = place_of(arguments_.input, tile, common_.rank);
      std::byte* const to = common_.output + tile.begin;
      for_each_vector<Sum::kBatch>(
          tile.bytes, [&](std::uint64_t at) { return Sum::at(arguments_, from + at); },
          [&](std::uint64_t at, Vector16 data) { store_some(to + at, tile.bytes - at, data); });
    } else if (is(Collective::kAllGather) || common_.rank == arguments_.root) {
      const std::byte* const from = common_.input + tile.begin;
      const unsigned block = is(Collective::kAllGather) ? common_.rank : 0;
      std::byte* const to = arguments_.output.multicast + place_of(arguments_.output, tile, block);
      for_each_vector<2>(
          tile.bytes, [&](std::uint64_t at) { return load_some(from + at, tile.bytes - at); },
          [&](std::uint64_t at, Vector16 data) { multimem_store(to + at, data); });
    }
  }

  const MultimemArguments& arguments_;
  const Arguments& common_;
  const plan::Range share_;  // A part of each block of the message.
  Watch& watch_;
};

template <class Sum>
__global__ void __launch_bounds__(kMostThreads, 1)
    multimem(const __grid_constant__ MultimemArguments arguments) {
  run_call(arguments.common, [&](Watch& watch) { Multimem<Sum>(arguments, watch).run(); });
}

}  // namespace tutti::cuda
