// File: topology/graph/rational.h: exact fractions of 64-bit integers, for bounds that must not
// round.
//
// Always reduced, the denominator positive, so that equal values are equal members. Comparisons go
// through 128 bits and can't overflow.
#pragma once
#include <compare>
#include <cstdint>
#include <numeric>

namespace tutti::topology {

__extension__ using Wide = __int128;

class Rational {
 public:
  Rational() = default;
  /// `denominator` is positive, `numerator` not negative.
  Rational(std::int64_t numerator, std::int64_t denominator)
      : numerator_(numerator / std::gcd(numerator, denominator)),
        denominator_(denominator / std::gcd(numerator, denominator)) {}
  std::int64_t numerator() const { return numerator_; }
  std::int64_t denominator() const { return denominator_; }
  double value() const {
    return static_cast<double>(numerator_) / static_cast<double>(denominator_);
  }
  friend bool operator==(const Rational&, const Rational&) = default;
  friend std::strong_ordering operator<=>(const Rational& a, const Rational& b) {
    return Wide{a.numerator_} * b.denominator_ <=> Wide{b.numerator_} * a.denominator_;
  }

 private:
  std::int64_t numerator_ = 0;
  std::int64_t denominator_ = 1;
};

}  // namespace tutti::topology
