// File: kernels/cuda/one_shot.h: a small all-reduce in one kernel, without interpreting a plan.
//
// It stands for the plan `one_shot`: each rank gives its contribution to all others, and reduces
// all of them in canonical order; the tests compare the two. Contributions are packed lines, so the
// data say themselves that they are there: one trip over the link, and no barrier between the two
// halves. A thread gives a unit to all, and then reduces it.
//
// There is no credit either. Ranks alternate between two areas, by the number of the call. A rank
// that writes into an area again, two calls later, has got all contributions to the call between;
// and a rank gives that contribution only when it has read the area. The number is the block's own,
// in device memory, so that a captured call can be replayed.
//
// A line's first flag is that number, which no older line has. Its second flag also contains the
// chain of calls (calls.h), so a contribution to another call is never taken for one to this call.
#pragma once
#include "kernels/cuda/arithmetic.h"

namespace tutti::cuda {

template <DataType type, ReduceOp op>
class OneShot {
  using Traits = TypeTraits<type>;
  using Compute = Arithmetic<type, op>;
  using Values = typename Compute::Values;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kBytes = Traits::kBytes;
  static constexpr std::size_t kPartialBytes = Traits::kPartialBytes;

 public:
  TUTTI_DEVICE explicit OneShot(const OneShotArguments& arguments)
      : arguments_(arguments), common_(arguments.common), watch_{&common_, blockIdx.x} {}

  TUTTI_DEVICE void run() {
    BlockState* const state = common_.states + blockIdx.x;
    std::uint64_t call = 0;
    const std::uint64_t first = blockIdx.x * arguments_.elements_per_block;
    const std::uint64_t left = common_.count - first;
    const auto elements = static_cast<unsigned>(
        left < arguments_.elements_per_block ? left : arguments_.elements_per_block);
    Resolved input = {}, output = {};
    // Only read; sources and targets have one type.
    input.at = const_cast<std::byte*>(common_.input) + first * size_of(type);
    output.at = common_.output + first * size_of(type);
    input.aligned = reinterpret_cast<std::uintptr_t>(input.at) % 16 == 0;
    output.aligned = reinterpret_cast<std::uintptr_t>(output.at) % 16 == 0;
    const unsigned units = (elements + kElements - 1) / kElements;
    Asked asked;
    if (threadIdx.x == 0) asked = take_block(common_);
    bool failed = false;
#pragma unroll 1
    for (unsigned unit = threadIdx.x; unit < units; unit += blockDim.x) {
      const unsigned rest = elements - unit * kElements;
      const Position position{unit, rest < kElements ? rest : kElements, 0, 0};
      const auto own = load_unit<kBytes, kElements, Where::kPlain>(input, position, watch_, failed);
      const auto kept = load<Vector16>(state);  // Under way at the same time as load_unit.
      call = kept.word[0] | std::uint64_t{kept.word[1]} << 32;
      if (unit == threadIdx.x) begin(kept, units < blockDim.x ? units : blockDim.x);
      if (is_refused(watch_, asked)) break;
      asked = {};  // It is looked at once: it is not to keep registers meanwhile.
      const Values sum = sum_with(own, position, call, failed);
      if (failed) break;
      store_unit<kBytes, kElements, Where::kPlain>(output, position,
                                                   Compute::rounded(common_, sum, true));
    }
    if (watch_.why != Why::kNothing) tell(watch_);
    // All threads have read the state, and the next call's kernel begins after this one's end.
    if (sync_block_or(watch_.why != Why::kNothing) || threadIdx.x != 0) return;
    store(&state->one_shots, call + 1);
    store(&state->calls, BlockState::Calls{watch_.number, watch_.chain});
    store_relaxed(&state->busy, 0);
  }

 private:
  /// Posts the call. The `threads` threads that have a unit call it.
  TUTTI_DEVICE void begin(const Vector16& state, unsigned threads) {
    watch_.number = next_number(state.word[2]);
    watch_.chain = chained(state.word[3], common_.tag.digest);
    post_call(watch_, common_.tag, threadIdx.x, threads);
  }

  /// The result of all ranks. A scaled contribution travels as a partial sum of one rank.
  TUTTI_DEVICE Values sum_with(Bits<kBytes> own, const Position& position, std::uint64_t call,
                               bool& failed) {
    if constexpr (op != ReduceOp::kSum) {
      return exchange(own, position, call, failed);
    } else if constexpr (kBytes == kPartialBytes) {
      if (common_.scaled) own = Compute::stored(Compute::scaled(common_, Compute::widened(own)));
      return exchange(own, position, call, failed);
    } else {
      if (!common_.scaled) return exchange(own, position, call, failed);
      const Values scaled = Compute::scaled(common_, Compute::widened(own));
      return exchange(Compute::partial(scaled), position, call, failed);
    }
  }

  template <std::size_t kTravels>
  TUTTI_DEVICE Values exchange(const Bits<kTravels>& own, const Position& position,
                               std::uint64_t call, bool& failed) {
    return common_.ranks <= 2 ? exchange_among<2>(own, position, call, failed)
                              : exchange_among<kMostSources>(own, position, call, failed);
  }

  /// Gives this rank's contribution to all others, and adds up all; among up to kMost ranks.
  template <unsigned kMost, std::size_t kTravels>
  TUTTI_DEVICE Values exchange_among(const Bits<kTravels>& own, const Position& position,
                                     std::uint64_t call, bool& failed) {
    const auto is_other = [this](unsigned rank) {
      return rank < common_.ranks && rank != common_.rank;
    };
#pragma unroll
    for (unsigned rank = 0; rank < kMost; ++rank) {
      if (is_other(rank))
        store_unit<kTravels, kElements>(area(rank, common_.rank, call), position, own);
    }
    // As many at a time as registers are left for.
    constexpr unsigned kAtOnce = kTravels <= 16 ? kMost : 2;
    typename Compute::Tree tree;
#pragma unroll
    for (unsigned first = 0; first < kMost; first += kAtOnce) {
      Bits<kTravels> bits[kAtOnce];
      unsigned there = 0;  // A bit for each: bools would take a register each.
      // Without a branch, so that all are asked for before any is looked at; where there is no
      // other rank, it is an area that no rank writes into.
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned from = first + i < common_.ranks ? first + i : common_.rank;
        const bool arrived = load_lines(area(common_.rank, from, call), position, bits[i]);
        there |= (arrived ? 1u : 0u) << i;
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned rank = first + i;
        if (rank >= common_.ranks) continue;
        bool arrived = !is_other(rank) || (there >> i & 1) != 0;
        while (!arrived && !failed) {
          arrived = load_lines(area(common_.rank, rank, call), position, bits[i]);
          if (!arrived) failed = watch_.gives_up(rank);
          if (arrived) watch_.got_room();
        }
        Bits<kTravels> one = bits[i];  // Written into the array, it would be indexed by the rank.
        if (rank == common_.rank) one = own;
        tree.add(rank, unpacked(one));
      }
    }
    return tree.root(common_.ranks);
  }

  template <std::size_t kTravels>
  TUTTI_DEVICE static Values unpacked(const Bits<kTravels>& bits) {
    if constexpr (kTravels == kPartialBytes) {
      return Compute::of_partial(bits);
    } else {
      return Compute::widened(bits);
    }
  }

  /// Where, in the memory of `owner`, the contribution of rank `from` is.
  TUTTI_DEVICE Resolved area(unsigned owner, unsigned from, std::uint64_t call) const {
    const std::uint64_t turn = std::uint64_t{blockIdx.x} * 2 + call % 2;
    const std::uint64_t number = turn * common_.ranks + from;
    Resolved at = {};
    at.at = arguments_.areas[owner] + number * arguments_.area_bytes;
    at.format = SlotFormat::kPacked;
    const std::uint32_t flag = packed_flag(call);
    at.flag = packed_flags(flag, flag ^ watch_.chain);
    return at;
  }

  const OneShotArguments& arguments_;
  const Arguments& common_;
  Watch watch_;
};

template <DataType type, ReduceOp op>
__global__ void __launch_bounds__(kMostThreads, 1)
    one_shot(const __grid_constant__ OneShotArguments arguments) {
  OneShot<type, op>(arguments).run();
}

}  // namespace tutti::cuda
