// File: unit/base/numeric_test.cc: the narrow formats against a formulation that shares nothing
// with numeric.h: a table of all values, and the nearest one by search. And the scalar operations.
#include "tutti/detail/numeric.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/catch.h"
#include "tutti/detail/reduce_op.h"

namespace tutti::kernels {
namespace {

/// A format by its textbook description.
struct Textbook {
  const char* name;
  int exponent_bits, mantissa_bits;
  bool has_infinity;

  int code_bits() const { return 1 + exponent_bits + mantissa_bits; }
  std::uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }

  /// The magnitude that a code without sign would have if all codes were numbers.
  double number(std::uint32_t code) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = static_cast<int>(code >> mantissa_bits);
    const double fraction =
        std::ldexp(static_cast<double>(code & ((1u << mantissa_bits) - 1)), -mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                         : std::ldexp(1 + fraction, exponent - bias);
  }
  /// The first code that is not a number.
  std::uint32_t overflow() const {
    const std::uint32_t top = (1u << exponent_bits) - 1;
    return has_infinity ? top << mantissa_bits : sign_bit() - 1;
  }
  bool is_nan(std::uint32_t code) const {
    const std::uint32_t magnitude = code & (sign_bit() - 1);
    return magnitude > overflow() || (!has_infinity && magnitude == overflow());
  }
};

template <class T>
struct Description;
template <>
struct Description<Float16> {
  static constexpr Textbook kBook{"float16", 5, 10, true};
};
template <>
struct Description<Bfloat16> {
  static constexpr Textbook kBook{"bfloat16", 8, 7, true};
};
template <>
struct Description<Float8E4M3> {
  static constexpr Textbook kBook{"float8e4m3", 4, 3, false};
};
template <>
struct Description<Float8E5M2> {
  static constexpr Textbook kBook{"float8e5m2", 5, 2, true};
};

/// Rounds by looking for the two neighbours and comparing distances in float64, which is exact:
/// the next code after the largest number counts as if it were a number, so that a tie is decided
/// as IEEE 754 does.
class Search {
 public:
  explicit Search(const Textbook& book) : book_(book) {
    for (std::uint32_t code = 0; code <= book.overflow(); ++code) {
      numbers_.push_back(book.number(code));
    }
  }

  std::uint32_t round(float value) const {
    const std::uint32_t sign = std::signbit(value) ? book_.sign_bit() : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const auto above = std::lower_bound(numbers_.begin(), numbers_.end(), magnitude);
    if (above == numbers_.end()) return sign | book_.overflow();
    const auto code = static_cast<std::uint32_t>(above - numbers_.begin());
    if (*above == magnitude) return sign | code;
    const double up = *above - magnitude, down = magnitude - *(above - 1);
    const bool take_above = up < down || (up == down && code % 2 == 0);
    return sign | (take_above ? code : code - 1);
  }

 private:
  const Textbook& book_;
  std::vector<double> numbers_;
};

template <class T>
std::string mistake(float value, std::uint32_t expected) {
  const std::uint32_t got = round_to<T>(value).bits;
  const Textbook& book = Description<T>::kBook;
  if (got == expected || (book.is_nan(got) && book.is_nan(expected))) return {};
  return std::string(book.name) + ": float32 bits " +
         std::to_string(std::bit_cast<std::uint32_t>(value)) + " became " + std::to_string(got) +
         ", not " + std::to_string(expected);
}

}  // namespace

TEMPLATE_TEST_CASE("every code is decoded and comes back", "[numeric]", Float16, Bfloat16,
                   Float8E4M3, Float8E5M2) {
  const Textbook& book = Description<TestType>::kBook;
  int wrong_values = 0, wrong_codes = 0;
  for (std::uint32_t code = 0; code < 1u << book.code_bits(); ++code) {
    const TestType narrow{static_cast<decltype(TestType::bits)>(code)};
    const float value = to_float(narrow);
    const std::uint32_t magnitude = code & (book.sign_bit() - 1);
    if (book.is_nan(code)) {
      wrong_values += !std::isnan(value);
      wrong_codes += !book.is_nan(round_to<TestType>(value).bits);
      continue;
    }
    const double number = magnitude == book.overflow() ? std::numeric_limits<double>::infinity()
                                                       : book.number(magnitude);
    wrong_values += static_cast<double>(std::fabs(value)) != number;
    wrong_values += std::signbit(value) != ((code & book.sign_bit()) != 0);
    wrong_codes += round_to<TestType>(value).bits != code;
  }
  CHECK(wrong_values == 0);
  CHECK(wrong_codes == 0);
}

TEMPLATE_TEST_CASE("rounding is to nearest, ties to even, around every code", "[numeric]", Float16,
                   Bfloat16, Float8E4M3, Float8E5M2) {
  const Textbook& book = Description<TestType>::kBook;
  const Search search(book);
  std::string first_mistake;
  for (std::uint32_t code = 0; code < book.overflow(); ++code) {
    // All midpoints are float32 values: the mantissa has room, and so has the exponent (bfloat16's
    // smallest ones become subnormals).
    const auto middle = static_cast<float>((book.number(code) + book.number(code + 1)) / 2);
    const float infinity = std::numeric_limits<float>::infinity();
    for (const float value :
         {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, infinity),
          static_cast<float>(book.number(code))}) {
      for (const float signed_value : {value, -value}) {
        if (!first_mistake.empty()) break;
        first_mistake = mistake<TestType>(signed_value, search.round(signed_value));
      }
    }
  }
  INFO(first_mistake);
  CHECK(first_mistake.size() == 0);
}

TEMPLATE_TEST_CASE("any float32 is rounded to nearest", "[numeric]", Float16, Bfloat16, Float8E4M3,
                   Float8E5M2) {
  const Textbook& book = Description<TestType>::kBook;
  const Search search(book);
  const std::uint32_t seed = Catch::rngSeed();
  std::mt19937 random(seed);
  std::string first_mistake;
  for (int i = 0; i < 300000 && first_mistake.empty(); ++i) {
    std::uint32_t bits = static_cast<std::uint32_t>(random());
    if (i % 2 == 0) {
      // Half of them near the format's range, where all bits of float32 matter or few are left.
      const int exponent = static_cast<int>(random() % 48) - 30;
      bits = (bits & 0x807fffffu) | (static_cast<std::uint32_t>(127 + exponent) << 23);
    }
    if (i % 8 == 1) bits &= 0x807fffffu;  // Subnormals.
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) {
      if (!book.is_nan(round_to<TestType>(value).bits)) first_mistake = "a NaN became a number";
    } else {
      first_mistake = mistake<TestType>(value, search.round(value));
    }
  }
  INFO("seed " << seed << ": " << first_mistake);
  CHECK(first_mistake.size() == 0);
}

TEST_CASE("what is too large becomes what the format has for it", "[numeric]") {
  const float infinity = std::numeric_limits<float>::infinity();
  CHECK(round_to<Float16>(65519.996f).bits == 0x7bff);
  CHECK(round_to<Float16>(65520.0f).bits == 0x7c00);
  CHECK(round_to<Float16>(-infinity).bits == 0xfc00);
  CHECK(round_to<Bfloat16>(std::numeric_limits<float>::max()).bits == 0x7f80);
  CHECK(round_to<Float8E5M2>(61439.0f).bits == 0x7b);
  CHECK(round_to<Float8E5M2>(61440.0f).bits == 0x7c);
  // No infinity and no saturation: 464 is the tie between 448 and what would be 480.
  CHECK(round_to<Float8E4M3>(464.0f).bits == 0x7e);
  CHECK(round_to<Float8E4M3>(464.00003f).bits == 0x7f);
  CHECK(round_to<Float8E4M3>(-464.00003f).bits == 0xff);
  CHECK(round_to<Float8E4M3>(infinity).bits == 0x7f);
}

TEST_CASE("NaNs stay NaNs whatever their payload", "[numeric]") {
  for (const std::uint32_t bits : {0x7f800001u, 0x7f80ffffu, 0x7fc00000u, 0x7fffffffu, 0xff800001u,
                                   0xffc00000u, 0xffffffffu}) {
    const auto nan = std::bit_cast<float>(bits);
    CHECK(std::isnan(to_float(round_to<Float16>(nan))));
    CHECK(std::isnan(to_float(round_to<Bfloat16>(nan))));
    CHECK(std::isnan(to_float(round_to<Float8E4M3>(nan))));
    CHECK(std::isnan(to_float(round_to<Float8E5M2>(nan))));
  }
}

TEST_CASE("integers wrap and averages truncate", "[numeric]") {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(combine<ReduceOp::kSum>(kMost, std::int64_t{1}) ==
        std::numeric_limits<std::int64_t>::min());
  CHECK(combine<ReduceOp::kProd>(kMost, kMost) == 1);
  CHECK(combine<ReduceOp::kSum>(std::int8_t{127}, std::int8_t{1}) == -128);
  CHECK(combine<ReduceOp::kProd>(std::uint8_t{255}, std::uint8_t{255}) == 1);
  CHECK(finish<ReduceOp::kAvg>(std::int32_t{-7}, 2) == -3);
  CHECK(finish<ReduceOp::kAvg>(std::uint32_t{0xfffffff9u}, 2) == 0x7ffffffcu);
  // More ranks than the type can count.
  CHECK(finish<ReduceOp::kAvg>(std::int8_t{-128}, 200) == 0);
  CHECK(finish<ReduceOp::kAvg>(std::uint8_t{255}, 300) == 0);
  CHECK(finish<ReduceOp::kAvg>(std::numeric_limits<std::int32_t>::min(), 1) ==
        std::numeric_limits<std::int32_t>::min());
  // A 64-bit scale keeps all its bits, which a float64 would not.
  CHECK(scale_as<std::int64_t>(0.5, kMost) == kMost);
  CHECK(scale_as<std::uint8_t>(0.5, 0x1ff) == 0xff);
  CHECK(scale_as<float>(0.1, 7) == 0.1f);
}

TEMPLATE_TEST_CASE("minimum and maximum commute, with zeros and NaNs too", "[numeric]", float,
                   double) {
  using T = TestType;
  const T nan = std::numeric_limits<T>::quiet_NaN(), infinity = std::numeric_limits<T>::infinity();
  const T zero{0};
  CHECK_FALSE(std::signbit(combine<ReduceOp::kMax>(-zero, zero)));
  CHECK_FALSE(std::signbit(combine<ReduceOp::kMax>(zero, -zero)));
  CHECK(std::signbit(combine<ReduceOp::kMax>(-zero, -zero)));
  CHECK(std::signbit(combine<ReduceOp::kMin>(-zero, zero)));
  CHECK(std::signbit(combine<ReduceOp::kMin>(zero, -zero)));
  CHECK_FALSE(std::signbit(combine<ReduceOp::kMin>(zero, zero)));
  CHECK(combine<ReduceOp::kMax>(-infinity, infinity) == infinity);
  CHECK(combine<ReduceOp::kMin>(infinity, -infinity) == -infinity);
  CHECK(combine<ReduceOp::kMax>(T{-3}, T{2}) == 2);
  CHECK(combine<ReduceOp::kMin>(T{-3}, T{2}) == -3);
  for (const T other : {zero, infinity, -infinity, T{5}, nan}) {
    CHECK(std::isnan(combine<ReduceOp::kMax>(nan, other)));
    CHECK(std::isnan(combine<ReduceOp::kMax>(other, nan)));
    CHECK(std::isnan(combine<ReduceOp::kMin>(nan, other)));
    CHECK(std::isnan(combine<ReduceOp::kMin>(other, nan)));
  }
}

TEST_CASE("every supported pair of type and operation is dispatched once", "[numeric]") {
  for (int type = 0; type < 12; ++type) {
    for (int op = 0; op < 9; ++op) {
      const auto wanted_type = static_cast<DataType>(type);
      const auto wanted_op = static_cast<ReduceOp>(op);
      int calls = 0;
      dispatch(wanted_type, wanted_op, [&]<DataType kType, ReduceOp kOp>() {
        calls += kType == wanted_type && kOp == wanted_op ? 1 : 100;
        static_assert(sizeof(typename Element<kType>::Storage) == size_of(kType));
        static_assert(sizeof(typename Element<kType>::Accumulator) ==
                      size_of(accumulator_of(kType)));
      });
      INFO(to_string(wanted_type) << " " << to_string(wanted_op));
      CHECK(calls == (is_supported(wanted_type, wanted_op) ? 1 : 0));
    }
  }
}

}  // namespace tutti::kernels
