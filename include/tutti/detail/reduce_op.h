// File: tutti/detail/reduce_op.h: the one definition of the arithmetic, for the host, devices and
// the reference.
//
// Model. An Element says how a message's elements widen to accumulators and round back. An
// Operation says how two accumulators combine, the factor of a rank's own input, and the divisor of
// a finished accumulator. Nothing else enters a result: not the rank that computes it, nor in
// which memory, or in what batches. The order is the canonical tree's, split by `left_part`.
//
//   sum avg premulsum prod   integers wrap, floats round once for each operation
//   avg                      divides the finished sum by the rank count: floats truly, integers
//                            towards zero
//   premulsum                multiplies by the scale in the accumulator type, before all else
//   min max                  NaN if either is NaN; -0 is less than +0, so that operands commute
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tutti/detail/numeric.h"
#include "tutti/types.h"

namespace tutti::kernels {

/// How many of n > 1 leaves the canonical tree has on its left: the largest power of two below n.
TUTTI_HD constexpr std::size_t left_part(std::size_t n) {
  std::size_t part = 1;
  while (part * 2 < n) part *= 2;
  return part;
}

/// How `type` lies in memory (Storage), in which type it is reduced (Accumulator), and how to get
/// from one to the other.
template <DataType type>
struct Element;

template <class T>
struct PlainElement {
  using Storage = T;
  using Accumulator = T;
  TUTTI_HD static T widen(T x) { return x; }
  TUTTI_HD static T round(T x) { return x; }
};
template <class T>
struct NarrowElement {
  using Storage = T;
  using Accumulator = float;
  TUTTI_HD static float widen(T x) { return to_float(x); }
  TUTTI_HD static T round(float x) { return round_to<T>(x); }
};

#define TUTTI_ELEMENT(enumerator, ...) \
  template <>                          \
  struct Element<DataType::enumerator> : __VA_ARGS__ {};
TUTTI_ELEMENT(kInt8, PlainElement<std::int8_t>)
TUTTI_ELEMENT(kUint8, PlainElement<std::uint8_t>)
TUTTI_ELEMENT(kInt16, PlainElement<std::int16_t>)
TUTTI_ELEMENT(kUint16, PlainElement<std::uint16_t>)
TUTTI_ELEMENT(kInt32, PlainElement<std::int32_t>)
TUTTI_ELEMENT(kUint32, PlainElement<std::uint32_t>)
TUTTI_ELEMENT(kInt64, PlainElement<std::int64_t>)
TUTTI_ELEMENT(kUint64, PlainElement<std::uint64_t>)
TUTTI_ELEMENT(kFloat16, NarrowElement<Float16>)
TUTTI_ELEMENT(kFloat32, PlainElement<float>)
TUTTI_ELEMENT(kFloat64, PlainElement<double>)
TUTTI_ELEMENT(kBfloat16, NarrowElement<Bfloat16>)
TUTTI_ELEMENT(kFloat8E4M3, NarrowElement<Float8E4M3>)
TUTTI_ELEMENT(kFloat8E5M2, NarrowElement<Float8E5M2>)
#undef TUTTI_ELEMENT

// A type whose line in data_types.def does not fit its arithmetic does not compile.
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, kind, accumulator, ...)     \
  static_assert(sizeof(Element<DataType::enumerator>::Storage) == (bytes),          \
                text ": its size is not its Element's");                            \
  static_assert(std::is_same_v<Element<DataType::enumerator>::Accumulator,          \
                               Element<DataType::accumulator>::Storage>,            \
                text ": its accumulator is not its Element's");                     \
  static_assert(std::is_integral_v<Element<DataType::enumerator>::Storage> ==       \
                        (NumberKind::kind != NumberKind::kFloat) &&                 \
                    std::is_signed_v<Element<DataType::enumerator>::Accumulator> == \
                        (NumberKind::kind != NumberKind::kUnsigned),                \
                text ": its kind is not its Element's");
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE

// Signed overflow is undefined and small integers promote to int, so integers are added and
// multiplied in an unsigned type of at least 32 bits.
template <class T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

template <class T>
TUTTI_HD T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  } else {
    return a + b;
  }
}

template <class T>
TUTTI_HD T multiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  } else {
    return a * b;
  }
}

/// The mean from a sum. Any rank count fits every type that is divided in: integers of 8 and 16
/// bits are divided as int.
template <class T>
TUTTI_HD T divide(T sum, int rank_count) {
  using Divisor = std::conditional_t<std::is_integral_v<T> && sizeof(T) < sizeof(int), int, T>;
  return static_cast<T>(static_cast<Divisor>(sum) / static_cast<Divisor>(rank_count));
}

template <class T>
TUTTI_HD T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return a + b;
    if (a == 0 && b == 0) return a + b;  // -0 only if both are.
  }
  return a < b ? b : a;
}

template <class T>
TUTTI_HD T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a != a || b != b) return a + b;
    if (a == 0 && b == 0) return -(-a + -b);  // +0 only if both are.
  }
  return b < a ? b : a;
}

/// One node of the canonical tree: its left and its right child.
template <ReduceOp op, class T>
TUTTI_HD T combine(T a, T b) {
  static_assert(std::is_integral_v<T> || !is_bitwise(op));
  if constexpr (op == ReduceOp::kSum || op == ReduceOp::kAvg || op == ReduceOp::kPreMulSum) {
    return add(a, b);
  } else if constexpr (op == ReduceOp::kProd) {
    return multiply(a, b);
  } else if constexpr (op == ReduceOp::kMax) {
    return larger(a, b);
  } else if constexpr (op == ReduceOp::kMin) {
    return smaller(a, b);
  } else if constexpr (op == ReduceOp::kAnd) {
    return static_cast<T>(a & b);
  } else if constexpr (op == ReduceOp::kOr) {
    return static_cast<T>(a | b);
  } else {
    static_assert(op == ReduceOp::kXor);
    return static_cast<T>(a ^ b);
  }
}

/// The last operation on the root of the tree, before it is rounded to a result.
template <ReduceOp op, class T>
TUTTI_HD T finish(T value, int rank_count) {
  if constexpr (op == ReduceOp::kAvg) {
    return divide(value, rank_count);
  } else {
    static_cast<void>(rank_count);
    return value;
  }
}

/// A rank's pre-multiplier in the accumulator type T: rounded for float32, modulo 2^bits for
/// integers, which have their own so that 64 bits survive.
template <class T>
TUTTI_HD T scale_as(double scale, std::int64_t integer_scale) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(integer_scale);
  } else {
    return static_cast<T>(scale);
  }
}

namespace detail {
template <DataType type, class F>
void dispatch_op(ReduceOp op, F&& f) {
  switch (op) {
#define TUTTI_REDUCE_OP(enumerator, ...)                      \
  case ReduceOp::enumerator:                                  \
    if constexpr (is_supported(type, ReduceOp::enumerator)) { \
      f.template operator()<type, ReduceOp::enumerator>();    \
    }                                                         \
    return;
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  }
}
}  // namespace detail

/// Calls `f.template operator()<type, op>()` with both as constants; does nothing for a pair that
/// is_supported rejects.
template <class F>
void dispatch(DataType type, ReduceOp op, F&& f) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  case DataType::enumerator:                                 \
    return detail::dispatch_op<DataType::enumerator>(op, f);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
}

}  // namespace tutti::kernels
