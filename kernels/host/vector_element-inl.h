// File: kernels/host/vector_element-inl.h: tutti/detail/reduce_op.h in vectors: elements that widen
// and round, operations that combine. Compiled once for each instruction set; has to agree with the
// scalar definitions bit for bit (NaN payloads apart), which the tests check for every type and
// operation.
#if defined(TUTTI_VECTOR_ELEMENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_VECTOR_ELEMENT_INL_H_
#undef TUTTI_VECTOR_ELEMENT_INL_H_
#else
#define TUTTI_VECTOR_ELEMENT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstring>

#include "tutti/detail/reduce_op.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Any alignment. A single lane goes through memcpy, because targets without vectors dereference.
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const std::byte* from) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return hn::Set(d, value);
  } else {
    return hn::LoadU(d, reinterpret_cast<const T*>(from));
  }
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, std::byte* to) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    const T lane = hn::GetLane(value);
    std::memcpy(to, &lane, sizeof(T));
  } else {
    hn::StoreU(value, d, reinterpret_cast<T*>(to));
  }
}

// What Highway has from 1.0 on; Ubuntu 22.04's is 0.16.
#if HWY_MAJOR == 0
template <class V>
HWY_INLINE auto is_nan(V value) {
  return hn::Not(hn::Eq(value, value));
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void load_interleaved(D d, const T* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  T evens[kLanes], odds[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    std::memcpy(evens + i, from + 2 * i, sizeof(T));
    std::memcpy(odds + i, from + 2 * i + 1, sizeof(T));
  }
  even = hn::LoadU(d, evens);
  odd = hn::LoadU(d, odds);
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_interleaved(D d, hn::Vec<D> even, hn::Vec<D> odd, T* to) {
  constexpr std::size_t kLanes = hn::MaxLanes(D());
  T evens[kLanes], odds[kLanes];
  hn::StoreU(even, d, evens);
  hn::StoreU(odd, d, odds);
  for (std::size_t i = 0; i < kLanes; ++i) {
    std::memcpy(to + 2 * i, evens + i, sizeof(T));
    std::memcpy(to + 2 * i + 1, odds + i, sizeof(T));
  }
}
#else
template <class V>
HWY_INLINE auto is_nan(V value) {
  return hn::IsNaN(value);
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void load_interleaved(D d, const T* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
  hn::LoadInterleaved2(d, from, even, odd);
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_interleaved(D d, hn::Vec<D> even, hn::Vec<D> odd, T* to) {
  hn::StoreInterleaved2(even, odd, d, to);
}
#endif

// The even elements to one vector and the odd ones to another, and back.
template <class D>
HWY_INLINE void load_pair(D d, const std::byte* from, hn::Vec<D>& even, hn::Vec<D>& odd) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    even = load(d, from);
    odd = load(d, from + sizeof(T));
  } else {
    load_interleaved(d, reinterpret_cast<const T*>(from), even, odd);
  }
}

// Out of line, or the compiler gets the shuffles ready where they may not be needed.
template <class D>
HWY_NOINLINE void store_pair(D d, hn::Vec<D> even, hn::Vec<D> odd, std::byte* to) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) == 1) {
    store(d, even, to);
    store(d, odd, to + sizeof(T));
  } else {
    store_interleaved(d, even, odd, reinterpret_cast<T*>(to));
  }
}

// Past the cache where the vector is wide enough; wants `to` aligned to the vector.
template <class D>
HWY_INLINE void stream(D d, hn::Vec<D> value, std::byte* to) {
  using T = hn::TFromD<D>;
  if constexpr (hn::MaxLanes(D()) * sizeof(T) >= 16) {
    hn::Stream(value, d, reinterpret_cast<T*>(to));
  } else {
    store(d, value, to);
  }
}

// Vector elements: Lane is the type of accumulators, Stored what a message's elements are loaded
// as, kPairs whether two vectors at a time can hold the even and the odd elements. D is the tag of
// the accumulators.
template <class T>
struct PlainVector {
  static constexpr bool kPairs = false;
  using Lane = T;
  using Stored = T;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D, hn::Vec<D> stored) {
    return stored;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> round(D, hn::Vec<D> value) {
    return value;
  }
};

struct Bfloat16Vector {
  static constexpr bool kPairs = true;
  using Lane = float;
  using Stored = std::uint16_t;
  template <class D>
  using StoredTag = hn::Rebind<Stored, D>;
  template <class D>
  using Bits = hn::RebindToUnsigned<D>;

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<StoredTag<D>> stored) {
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(Bits<D>(), stored)));
  }
  template <class D>
  static HWY_INLINE hn::Vec<StoredTag<D>> round(D d, hn::Vec<D> value) {
    const hn::RebindToSigned<D> di;
    const auto word = hn::ShiftRight<16>(round_word<true>(d, value));
    return hn::DemoteTo(StoredTag<D>(), hn::BitCast(di, word));
  }

  // Two neighbours are one 32-bit word, and half of it is a float32 as it stands: working on the
  // even elements in one vector and the odd ones in another costs no moves between lanes.
  template <class D>
  static HWY_INLINE hn::Vec<D> widen_even(D d, hn::Vec<Bits<D>> words) {
    return hn::BitCast(d, hn::ShiftLeft<16>(words));
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> widen_odd(D d, hn::Vec<Bits<D>> words) {
    return hn::BitCast(d, hn::And(words, hn::Set(Bits<D>(), 0xffff0000u)));
  }
  template <bool kAnyNan, class D>
  static HWY_INLINE hn::Vec<Bits<D>> round_pair(D d, hn::Vec<D> even, hn::Vec<D> odd) {
    const Bits<D> du;
    if constexpr (hn::MaxLanes(D()) == 1) {
      const auto upper = hn::And(round_word<kAnyNan>(d, odd), hn::Set(du, 0xffff0000u));
      return hn::Or(upper, hn::ShiftRight<16>(round_word<kAnyNan>(d, even)));
    } else {
      const hn::Repartition<std::uint16_t, D> halves;
      const auto lower = hn::ShiftRight<16>(round_word<kAnyNan>(d, even));
      return hn::BitCast(du, hn::OddEven(hn::BitCast(halves, round_word<kAnyNan>(d, odd)),
                                         hn::BitCast(halves, lower)));
    }
  }

 private:
  // The upper half of each lane is the rounded value. Without kAnyNan, NaNs have to have a lower
  // half of zero: those survive rounding as numbers do, others might be carried into an infinity
  // or a zero. Arithmetic on widened bfloat16 yields only an operand's NaN or the default one.
  template <bool kAnyNan, class D>
  static HWY_INLINE hn::Vec<Bits<D>> round_word(D d, hn::Vec<D> value) {
    const Bits<D> du;
    const auto bits = hn::BitCast(du, value);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
    if constexpr (kAnyNan) {
      const auto nan = hn::BitCast(d, hn::Set(du, 0x7fffffff));
      return hn::BitCast(du, hn::IfThenElse(is_nan(value), nan, hn::BitCast(d, rounded)));
    } else {
      return rounded;
    }
  }
};

// The formats of numeric.h by integer arithmetic, plus two operations that numeric.h spells out:
// below the smallest normal number, an addition at the right magnitude rounds as wanted, and a
// product normalises.
template <class Format, class StoredType>
struct SmallVector {
  static constexpr bool kPairs = false;
  using Lane = float;
  using Stored = StoredType;
  template <class D>
  using StoredTag = hn::Rebind<Stored, D>;
  static constexpr int kToSign = sizeof(Stored) == 2 ? 16 : 24;
  static constexpr std::uint32_t kRebiasBits = static_cast<std::uint32_t>(127 - Format::kBias)
                                               << 23;

  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<StoredTag<D>> stored) {
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    const auto code = hn::PromoteTo(du, stored);
    const auto magnitude = hn::BitCast(di, hn::And(code, hn::Set(du, Format::kNan)));
    const auto sign = hn::ShiftLeft<kToSign>(hn::AndNot(hn::Set(du, Format::kNan), code));
    // As float32 bits, the code is too small by a power of two, which a product makes up for;
    // subnormals are normalised on the way.
    const auto tiny = hn::BitCast(d, hn::ShiftLeft<Format::kDropped>(magnitude));
    const auto finite = hn::Mul(tiny, hn::BitCast(d, hn::Set(du, kRebiasBits + (127u << 23))));
    const auto special = hn::Gt(magnitude, hn::Set(di, static_cast<int>(Format::kOverflow) - 1));
    // The mantissa bits of an infinity are 0 and those of a NaN are not, here as there.
    const auto infinite = hn::BitCast(d, hn::Or(hn::BitCast(du, tiny), hn::Set(du, 0x7f800000u)));
    return hn::Or(hn::IfThenElse(hn::RebindMask(d, special), infinite, finite),
                  hn::BitCast(d, sign));
  }

  template <class D>
  static HWY_INLINE hn::Vec<StoredTag<D>> round(D d, hn::Vec<D> value) {
    const hn::RebindToSigned<D> di;
    const hn::RebindToUnsigned<D> du;
    const auto lane = [&](std::uint32_t x) HWY_ATTR { return hn::Set(di, static_cast<int>(x)); };
    const auto magnitude_value = hn::Abs(value);
    const auto magnitude = hn::BitCast(di, magnitude_value);
    const auto sign = hn::AndNot(lane(0x7fffffffu), hn::BitCast(di, value));
    const auto odd = hn::And(hn::ShiftRight<Format::kDropped>(magnitude), lane(1));
    const auto rounded = hn::Add(hn::Add(magnitude, lane((1u << (Format::kDropped - 1)) - 1)), odd);
    const auto normal =
        hn::Min(hn::Sub(hn::ShiftRight<Format::kDropped>(rounded), lane(Format::kRebias)),
                lane(Format::kOverflow));
    // In the sum, the last place is worth the smallest number of the format.
    const auto anchor = lane(Format::kSmallest + (23u << 23));
    const auto subnormal =
        hn::Sub(hn::BitCast(di, hn::Add(magnitude_value, hn::BitCast(d, anchor))), anchor);
    const auto code =
        hn::IfThenElse(hn::Lt(magnitude, lane(Format::kSmallestNormal)), subnormal, normal);
    const auto nan = hn::Gt(magnitude, lane(0x7f800000u));
    const auto full = hn::Or(hn::IfThenElse(nan, lane(Format::kNan), code),
                             hn::BitCast(di, hn::ShiftRight<kToSign>(hn::BitCast(du, sign))));
    return hn::DemoteTo(StoredTag<D>(), full);
  }
};

using Float8E4M3Vector = SmallVector<Float8E4M3Format, std::uint8_t>;
using Float8E5M2Vector = SmallVector<Float8E5M2Format, std::uint8_t>;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// The instructions do what numeric.h says.
struct Float16Vector {
  static constexpr bool kPairs = false;
  using Lane = float;
  using Stored = std::uint16_t;
  template <class D>
  using StoredTag = hn::Rebind<Stored, D>;
  template <class D>
  static HWY_INLINE hn::Vec<D> widen(D d, hn::Vec<StoredTag<D>> stored) {
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), stored));
  }
  template <class D>
  static HWY_INLINE hn::Vec<StoredTag<D>> round(D, hn::Vec<D> value) {
    return hn::BitCast(StoredTag<D>(), hn::DemoteTo(hn::Rebind<hwy::float16_t, D>(), value));
  }
};
#else
using Float16Vector = SmallVector<Float16Format, std::uint16_t>;
#endif

template <class D>
HWY_INLINE hn::Vec<D> multiply_vectors(D d, hn::Vec<D> a, hn::Vec<D> b) {
  using T = hn::TFromD<D>;
  // No machine multiplies bytes: widen to 32 bits, of which the lowest 8 are the product's. Highway
  // multiplies 64-bit integers from 1.0 on.
  if constexpr (sizeof(T) == 1 || (HWY_MAJOR == 0 && sizeof(T) == 8 && !hwy::IsFloat<T>())) {
    alignas(64) T x[hn::MaxLanes(D())], y[hn::MaxLanes(D())];
    hn::Store(a, d, x);
    hn::Store(b, d, y);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) x[i] = multiply(x[i], y[i]);
    return hn::Load(d, x);
  } else {
    return hn::Mul(a, b);
  }
}

// NaN if either is, and of two zeros the negative one is less.
template <bool kLarger, class D>
HWY_INLINE hn::Vec<D> extreme(D, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (hwy::IsFloat<hn::TFromD<D>>()) {
    // Equal numbers have equal bits, but for zeros, whose signs the bit operation settles.
    const auto equal = kLarger ? hn::And(a, b) : hn::Or(a, b);
    const auto ordered = kLarger ? hn::Max(a, b) : hn::Min(a, b);
    const auto number = hn::IfThenElse(hn::Eq(a, b), equal, ordered);
    return hn::IfThenElse(is_nan(a), a, hn::IfThenElse(is_nan(b), b, number));
  } else {
    return kLarger ? hn::Max(a, b) : hn::Min(a, b);
  }
}

template <ReduceOp op, class D>
HWY_INLINE hn::Vec<D> combine_vectors(D d, hn::Vec<D> a, hn::Vec<D> b) {
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum) {
    return hn::Add(a, b);
  } else if constexpr (op == ReduceOp::kProd) {
    return multiply_vectors(d, a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return extreme<true>(d, a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    return extreme<false>(d, a, b);
  } else if constexpr (op == ReduceOp::kAnd) {
    return hn::And(a, b);
  } else if constexpr (op == ReduceOp::kOr) {
    return hn::Or(a, b);
  } else {
    static_assert(op == ReduceOp::kXor);
    return hn::Xor(a, b);
  }
}

template <class D>
HWY_INLINE hn::Vec<D> divide_vector(D d, hn::Vec<D> sum, int rank_count) {
  using T = hn::TFromD<D>;
  if constexpr (hwy::IsFloat<T>()) {
    return hn::Div(sum, hn::Set(d, static_cast<T>(rank_count)));
  } else {
    alignas(64) T lanes[hn::MaxLanes(D())];
    hn::Store(sum, d, lanes);
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = divide(lanes[i], rank_count);
    return hn::Load(d, lanes);
  }
}

}  // namespace tutti::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
