// File: kernels/cuda/sgd.h: reduce-scatter of gradients, a step of SGD with momentum and weight
// decay, and all-gather of the parameters, in one kernel.
//
//   g          = average of all ranks' gradients + weight_decay * master
//   momentum   = momentum_factor * momentum + g
//   master     = master - learning_rate * momentum
//   parameters = master, rounded to their type, on all ranks
//
// All but the last is float32 and not rounded in between. That is torch.optim.SGD without dampening
// or Nesterov; the first step's momentum is 0. Each rank keeps master and momentum of its piece
// alone (as ZeRO does). It stands for two_shot+direct, with the step between reading and writing.
#pragma once
#include "kernels/cuda/fused.h"
#include "kernels/cuda/mapped.h"

namespace tutti::cuda {

template <DataType type>
class Sgd {
  using Traits = TypeTraits<type>;
  using Sum = Body<type, ReduceOp::kSum, Where::kPlain>;
  using Values = typename Arithmetic<type, ReduceOp::kSum>::Values;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kStateBytes = kElements * sizeof(float);

 public:
  TUTTI_DEVICE Sgd(const SgdArguments& arguments, Work& work)
      : arguments_(arguments), common_(arguments.common), work_(work) {}

  TUTTI_DEVICE void run(Watch& watch) const {
    between_meetings<type>(common_, work_, watch, [&](std::size_t first, bool& failed) {
      const Sum sum(common_, work_, watch, failed);
      for_each_unit<kElements>(work_, 0, [&](const Position& position) {
        if (position.valid == 0) return;
        const std::uint64_t at = first + std::uint64_t{position.unit} * kElements;
        sum.store_all(position, step(sum.reduce(position), at, position.valid));
      });
    });
  }

 private:
  TUTTI_DEVICE Values step(Values gradient, std::uint64_t first, unsigned valid) const {
    Values master = {}, momentum = {};
    state(arguments_.master + first, master, valid, false);
    state(arguments_.momentum + first, momentum, valid, false);
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      const float average =
          kernels::finish<ReduceOp::kAvg>(gradient.of[e], static_cast<int>(common_.ranks));
      const float decayed = average + arguments_.weight_decay * master.of[e];
      momentum.of[e] = arguments_.momentum_factor * momentum.of[e] + decayed;
      master.of[e] = master.of[e] - arguments_.learning_rate * momentum.of[e];
    }
    state(arguments_.master + first, master, valid, true);
    state(arguments_.momentum + first, momentum, valid, true);
    return master;
  }

  /// A unit of this rank's state, loaded or stored; aligned, as pieces begin at whole grains.
  TUTTI_DEVICE static void state(float* at, Values& values, unsigned valid, bool to_memory) {
    auto* bytes = reinterpret_cast<std::byte*>(at);
    if (valid == kElements) {
      Bits<kStateBytes> bits;
      if (to_memory) {
        std::memcpy(bits.word, values.of, sizeof values.of);
        store_whole(bytes, bits);
      } else {
        bits = load_whole<kStateBytes>(bytes);
        std::memcpy(values.of, bits.word, sizeof values.of);
      }
      return;
    }
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      if (e >= valid) continue;
      if (to_memory) {
        store(bytes + e * sizeof(float), values.of[e]);
      } else {
        values.of[e] = load<float>(bytes + e * sizeof(float));
      }
    }
  }

  const SgdArguments& arguments_;
  const Arguments& common_;
  Work& work_;
};

template <DataType type>
__global__ void __launch_bounds__(kMostThreads, 1)
    sgd(const __grid_constant__ SgdArguments arguments) {
  __shared__ Work work;
  const Sgd<type> one(arguments, work);
  run_call(arguments.common, [&](Watch& watch) { one.run(watch); });
}

}  // namespace tutti::cuda
