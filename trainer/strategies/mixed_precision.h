// File: trainer/strategies/mixed_precision.h: bfloat16 on the way, float32 at rest.
//
// Small slopes would round to 0 in 16 bits of less range, so the loss is scaled by a power of two,
// which is exact. If a gradient overflows on any rank, all ranks leave the step out and halve the
// scale; it doubles after some good steps.
//
// Micikevicius et al.: Mixed Precision Training, 2018.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "trainer/optimisers/optimiser.h"
#include "trainer/traffic.h"

namespace tutti::trainer {

using Half = std::uint16_t;  // A bfloat16's bits.

inline Half round_to_half(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(value)) return static_cast<Half>(bits >> 16U | 0x40U);
  return static_cast<Half>((bits + 0x7fffU + (bits >> 16U & 1U)) >> 16U);  // To nearest, even.
}

inline float widen(Half half) {
  const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16U;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

/// What the loss is multiplied by, the same on all ranks.
class LossScale {
 public:
  float scale() const { return scale_; }
  /// After a step's gradients are there, of which each rank has some: whether any is not finite, so
  /// that the step has to be left out. Changes the scale. Collective.
  Result<bool> next(Traffic& traffic, std::span<const float> gradients) {
    float overflow = 0;
    for (const float slope : gradients) overflow = std::isfinite(slope) ? overflow : 1;
    TUTTI_RETURN_IF_ERROR(traffic.all_reduce(&overflow, 1, DataType::kFloat32, ReduceOp::kMax));
    good_ = overflow != 0 || good_ == kGoodSteps ? 0 : good_;
    if (overflow != 0) {
      scale_ = std::max(1.0F, scale_ / 2);
      ++left_out_;
      return true;
    }
    if (++good_ == kGoodSteps) scale_ = std::min(kHighest, scale_ * 2);
    return false;
  }
  /// For checkpoints; one in float32 has none.
  std::vector<Piece> pieces() {
    return {{"loss scale", 0, {&scale_, 1}, Held::kEverywhere, true},
            {"good steps", 0, {&good_, 1}, Held::kEverywhere, true}};
  }
  std::string note() const {
    return "the loss is scaled by " + std::to_string(static_cast<int>(scale_)) + ", " +
           std::to_string(left_out_) + " steps were left out";
  }

 private:
  static constexpr float kGoodSteps = 200;  // Until the scale doubles.
  static constexpr float kHighest = 65536;
  float scale_ = 1024, good_ = 0;  // good_: steps since the scale changed.
  std::uint64_t left_out_ = 0;
};

}  // namespace tutti::trainer
