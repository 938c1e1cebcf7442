// File: tutti/detail/unit_arithmetic.h: what a thread computes with a unit of data: reduce_op.h for
// several elements at a time. For kernels: those of the library and the program's own. Part of the
// library's insides: programs include tutti/device.cuh.
//
// A unit is up to 8 elements in up to 16 bytes. On its way it is kept as bits; only arithmetic
// looks into it.
//
// The order. Sums of 1, 2, 4, ... neighbours join like the digits of a binary counter, and what is
// left at the end joins from the right. That is the canonical tree (reduce_op.h: it splits at the
// largest power of two below n) for every n, with log2(n) values at a time.
#pragma once
#include <bit>
#include <cstring>

#include "tutti/detail/device_common.h"
#include "tutti/detail/prim.h"
#include "tutti/detail/reduce_op.h"

namespace tutti::cuda {

/// The bits of a unit, 8, 16 or 32 bytes.
template <std::size_t kBytes>
struct alignas(kBytes < 16 ? 8 : 16) Bits {
  std::uint32_t word[kBytes / 4];
};

template <std::size_t kBytes>
TUTTI_DEVICE Bits<kBytes> zero_bits() {
  Bits<kBytes> bits;
#pragma unroll
  for (std::size_t i = 0; i < kBytes / 4; ++i) bits.word[i] = 0;
  return bits;
}

/// Plain data, all of the unit: one or two accesses.
template <std::size_t kBytes>
TUTTI_DEVICE Bits<kBytes> load_whole(const std::byte* at) {
  if constexpr (kBytes <= 16) {
    return load<Bits<kBytes>>(at);
  } else {
    Bits<kBytes> bits;
#pragma unroll
    for (std::size_t v = 0; v < kBytes / 16; ++v) {
      const auto vector = load<Vector16>(at + v * 16);
#pragma unroll
      for (int i = 0; i < 4; ++i) bits.word[v * 4 + i] = vector.word[i];
    }
    return bits;
  }
}
template <std::size_t kBytes>
TUTTI_DEVICE void store_whole(std::byte* at, const Bits<kBytes>& bits) {
  if constexpr (kBytes <= 16) {
    store(at, bits);
  } else {
#pragma unroll
    for (std::size_t v = 0; v < kBytes / 16; ++v) {
      const auto* from = bits.word + v * 4;
      store(at + v * 16, Vector16{{from[0], from[1], from[2], from[3]}});
    }
  }
}

/// One element of `kElement` bytes; its neighbours in the word are kept.
template <std::size_t kElement, std::size_t kBytes>
TUTTI_DEVICE void load_element(const std::byte* at, unsigned index, Bits<kBytes>& bits) {
  if constexpr (kElement == 8) {
    const auto value = load<std::uint64_t>(at);
    bits.word[index * 2] = static_cast<std::uint32_t>(value);
    bits.word[index * 2 + 1] = static_cast<std::uint32_t>(value >> 32);
  } else if constexpr (kElement == 4) {
    bits.word[index] = load<std::uint32_t>(at);
  } else {
    constexpr unsigned kPerWord = 4 / kElement;
    std::uint32_t value = 0;
    if constexpr (kElement == 2) {
      value = load<std::uint16_t>(at);
    } else {
      value = load<std::uint8_t>(at);
    }
    bits.word[index / kPerWord] |= value << (index % kPerWord * kElement * 8);
  }
}
template <std::size_t kElement, std::size_t kBytes>
TUTTI_DEVICE void store_element(std::byte* at, unsigned index, const Bits<kBytes>& bits) {
  if constexpr (kElement == 8) {
    store(at, std::uint64_t{bits.word[index * 2]} | std::uint64_t{bits.word[index * 2 + 1]} << 32);
  } else if constexpr (kElement == 4) {
    store(at, bits.word[index]);
  } else {
    constexpr unsigned kPerWord = 4 / kElement;
    const std::uint32_t value = bits.word[index / kPerWord] >> (index % kPerWord * kElement * 8);
    if constexpr (kElement == 2) {
      store(at, static_cast<std::uint16_t>(value));
    } else {
      store(at, static_cast<std::uint8_t>(value));
    }
  }
}

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
struct UnitArithmetic {
  using Traits = TypeTraits<type>;
  using Element = typename Traits::Element;
  using Storage = typename Traits::Storage;
  using Accumulator = typename Traits::Accumulator;
  static constexpr unsigned kElements = Traits::kElements;
  static constexpr std::size_t kBytes = Traits::kBytes;

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

  TUTTI_DEVICE static void combine(const Values& left, const Values& right, Values& to) {
#pragma unroll
    for (unsigned e = 0; e < kElements; ++e) {
      to.of[e] = kernels::combine<op>(left.of[e], right.of[e]);
    }
  }

  /// The canonical tree of up to kMost values, a power of two, that come one after the other.
  /// level[l] is the sum of 2^l neighbours; they join like the digits of a binary counter.
  template <unsigned kMost>
  struct TreeOf {
    static constexpr unsigned kLevels = std::bit_width(kMost) - 1;
    static_assert(kMost == 1u << kLevels);
    Values level[kLevels] = {};  // All kMost together: in the first.

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
      if (count == kMost) return level[0];
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
