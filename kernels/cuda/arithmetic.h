// File: kernels/cuda/arithmetic.h: what a thread computes with a unit in a call: the arithmetic of
// tutti/detail/unit_arithmetic.h, with partial sums, and with what a call says of leaves and
// results.
#pragma once
#include <cstring>

#include "kernels/cuda/unit.h"
#include "tutti/detail/unit_arithmetic.h"

namespace tutti::cuda {

template <DataType type, ReduceOp op>
struct Arithmetic : UnitArithmetic<type, op> {
  using Base = UnitArithmetic<type, op>;
  using Base::kBytes;
  using Base::kElements;
  using typename Base::Accumulator;
  using typename Base::Element;
  using typename Base::Storage;
  using typename Base::Values;
  using Tree = typename Base::template TreeOf<kMostSources>;
  static constexpr std::size_t kPartialBytes = TypeTraits<type>::kPartialBytes;

  TUTTI_DEVICE static Bits<kPartialBytes> partial(const Values& values) {
    Bits<kPartialBytes> bits;
    std::memcpy(bits.word, values.of, sizeof values.of);
    return bits;
  }
  TUTTI_DEVICE static Values of_partial(const Bits<kPartialBytes>& bits) {
    Values values;
    std::memcpy(values.of, bits.word, sizeof values.of);
    return values;
  }

  /// Multiplies a leaf of premulsum by the scale.
  TUTTI_DEVICE static Values scaled(const Arguments& arguments, Values values) {
    if constexpr (op == ReduceOp::kSum) {
      const Accumulator factor =
          arguments.scale_at != nullptr
              ? Element::widen(load<Storage>(arguments.scale_at))
              : kernels::scale_as<Accumulator>(arguments.scale, arguments.integer_scale);
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) {
        values.of[e] = kernels::multiply(factor, values.of[e]);
      }
    }
    return values;
  }

  /// As it goes to targets: a result, or a contribution.
  TUTTI_DEVICE static Bits<kBytes> rounded(const Arguments& arguments, Values values, bool result) {
    if (op == ReduceOp::kSum && result && arguments.op == ReduceOp::kAvg) {
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) {
        values.of[e] =
            kernels::finish<ReduceOp::kAvg>(values.of[e], static_cast<int>(arguments.ranks));
      }
    }
    return Base::stored(values);
  }
};

}  // namespace tutti::cuda
