#include "trainer/strategies/adasum.h"

#include <bit>
#include <string>

namespace tutti::trainer {
namespace {

/// Both ends of an exchange compute the same bits, as the lower rank's vector comes first.
void combine(const float* low, const float* high, float* into, std::size_t size) {
  double product = 0, low_square = 0, high_square = 0;
  for (std::size_t i = 0; i < size; ++i) {
    product += static_cast<double>(low[i]) * high[i];
    low_square += static_cast<double>(low[i]) * low[i];
    high_square += static_cast<double>(high[i]) * high[i];
  }
  const auto factor = [&](double square) {
    return static_cast<float>(square > 0 ? 1 - product / (2 * square) : 1);
  };
  const float of_low = factor(low_square), of_high = factor(high_square);
  for (std::size_t i = 0; i < size; ++i) into[i] = of_low * low[i] + of_high * high[i];
}

}  // namespace

Status adasum(Traffic& traffic, std::span<float> data, std::span<float> scratch,
              std::span<const std::size_t> sizes) {
  const std::size_t ranks = traffic.ranks(), me = traffic.me();
  if (!std::has_single_bit(ranks))
    return Error{Code::kInvalidArgument,
                 "Adasum needs a power of two of ranks, not " + std::to_string(ranks)};
  for (std::size_t distance = 1; distance < ranks; distance *= 2) {
    const std::size_t peer = me ^ distance;
    const Message out{data.data(), data.size(), peer}, in{scratch.data(), data.size(), peer};
    TUTTI_RETURN_IF_ERROR(traffic.exchange({&out, 1}, {&in, 1}));
    std::size_t offset = 0;
    for (const std::size_t size : sizes) {
      float* mine = data.data() + offset;
      const float* other = scratch.data() + offset;
      combine(me < peer ? mine : other, me < peer ? other : mine, mine, size);
      offset += size;
    }
  }
  return ok();
}

}  // namespace tutti::trainer
