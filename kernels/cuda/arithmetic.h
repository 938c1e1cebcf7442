// File: kernels/cuda/arithmetic.h: what a thread computes with a unit: kernels/reduce_op.h for
// several elements at a time.
//
// The order. Sums of 1, 2, 4, ... neighbours join like the digits of a binary counter, and what is
// left at the end joins from the right. That is the canonical tree (kernels/reduce_op.h: it splits
// at the largest power of two below n) for every n, with log2(n) values at a time.
#pragma once
#include <cstring>

#include "kernels/cuda/unit.h"
#include "kernels/reduce_op.h"

namespace tutti::cuda {

template <DataType type>
struct TypeTraits {
  using Element = kernels::Element<type>;
  using Storage = typename Element::Storage;
  using Accumulator = typename Element::Accumulator;
  static constexpr unsigned kElements = unit_elements(type);
  static constexpr std::size_t kBytes = kElements * sizeof(Storage);
  static constexpr std::size_t kPartialBytes = kElements * sizeof(Accumulator);
};

/// The arithmetic of one type and operation. The sum stands for avg and premulsum too, which differ
/// in what is done to leaves and results.
template <DataType type, ReduceOp op>
struct Arithmetic {
  using Traits = TypeTraits<type>;
  using Element = typename Traits::Element;
  using Storage = typename Traits::Storage;
  using Accumulator = typename Traits::Accumulator;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kBytes = Traits::kBytes;
  static constexpr std::size_t kPartialBytes = Traits::kPartialBytes;

  /// A unit on its way through the arithmetic.
  struct Values {
    Accumulator of[kElements];
  };

  TUTTI_DEVICE static Values widened(const Bits<kBytes>& bits) {
    Values values;
    if constexpr (type == DataType::kFloat16 || type == DataType::kBfloat16) {
#pragma unroll
      for (unsigned e = 0; e < kElements; e += 2) {
        widen_pair<type>(bits.word[e / 2], values.of[e], values.of[e + 1]);
      }
    } else {
      Storage stored[kElements];
      std::memcpy(stored, bits.word, sizeof stored);
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) values.of[e] = Element::widen(stored[e]);
    }
    return values;
  }

  /// Rounded, as they lie in memory.
  TUTTI_DEVICE static Bits<kBytes> stored(const Values& values) {
    Bits<kBytes> bits;
    if constexpr (type == DataType::kFloat16 || type == DataType::kBfloat16) {
#pragma unroll
      for (unsigned e = 0; e < kElements; e += 2) {
        bits.word[e / 2] = round_pair<type>(values.of[e], values.of[e + 1]);
      }
    } else {
      Storage storage[kElements];
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e) storage[e] = Element::round(values.of[e]);
      std::memcpy(bits.word, storage, sizeof storage);
    }
    return bits;
  }

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
    return stored(values);
  }

  TUTTI_DEVICE static void combine(const Values& left, const Values& right, Values& to) {
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      to.of[e] = kernels::combine<op>(left.of[e], right.of[e]);
    }
  }

  /// The canonical tree of values that come one after the other. level[l] is the sum of 2^l
  /// neighbours; they join like the digits of a binary counter.
  struct Tree {
    static constexpr unsigned kLevels = 3;
    static_assert(kMostSources == 1u << kLevels);
    Values level[kLevels] = {};  // All kMostSources together: in the first.

    /// Value number `index`, from 0. Each number of joins has a branch with a sum of its own: were
    /// one value summed up further and further, older sums would be kept in registers beside the
    /// levels.
    TUTTI_DEVICE void add(unsigned index, const Values& value) {
#pragma unroll
      for (unsigned joins = 0; joins <= kLevels; ++joins) {
        if ((index & ((2u << joins) - 1)) != (1u << joins) - 1) continue;
        Values sum = value;
#pragma unroll
        for (unsigned l = 0; l < joins; ++l) combine(level[l], sum, sum);
        level[joins % kLevels] = sum;
      }
    }

    TUTTI_DEVICE Values root(unsigned count) const {
      if (count == kMostSources) return level[0];
      Values sum = {};
      bool any = false;
#pragma unroll
      for (unsigned l = 0; l < kLevels; ++l) {
        if ((count >> l & 1) == 0) continue;
        if (any) {
          combine(level[l], sum, sum);
        } else {
          sum = level[l];
        }
        any = true;
      }
      return sum;
    }
  };
};

}  // namespace tutti::cuda
