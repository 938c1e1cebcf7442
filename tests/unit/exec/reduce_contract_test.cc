// File: unit/exec/reduce_contract_test.cc: the reference, by which all else is judged, is what
// docs/bitwise-contract.md says, in examples worked out by hand.
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/host/reduce.h"
#include "support/catch.h"

namespace tutti::kernels {
namespace {

/// One element from one form to another, as float32 at least on one side.
void convert(DataType type, const void* from, Form from_form, void* to, Form to_form) {
  const Source source{static_cast<const std::byte*>(from), from_form};
  const Target target{static_cast<std::byte*>(to), to_form};
  reduce_reference({type, ReduceOp::kSum, 1, 1, 1}, std::span(&source, 1), std::span(&target, 1),
                   1);
}

/// The result for one element that each rank contributes to, all of it by the reference. `type` is
/// float32 or narrower.
float reduced(DataType type, ReduceOp op, const std::vector<float>& values, int rank_count = 1) {
  std::vector<std::uint32_t> contributions(values.size());
  std::vector<Source> sources;
  for (std::size_t i = 0; i < values.size(); ++i) {
    convert(type, &values[i], Form::kPartial, &contributions[i], Form::kContribution);
    sources.push_back({reinterpret_cast<const std::byte*>(&contributions[i]), Form::kContribution});
  }
  std::uint32_t result = 0;
  const Target target{reinterpret_cast<std::byte*>(&result), Form::kResult};
  reduce_reference({type, op, rank_count, 1, 1}, sources, std::span(&target, 1), 1);
  float value = 0;
  convert(type, &result, Form::kContribution, &value, Form::kPartial);
  return value;
}

}  // namespace

TEST_CASE("the order is the canonical tree, and it matters", "[reduce]") {
  const std::uint32_t seed = Catch::rngSeed();
  std::mt19937 random(seed);
  const auto sum = [](const std::vector<float>& x) {
    return reduced(DataType::kFloat32, ReduceOp::kSum, x);
  };
  int unlike_left_fold = 0, unlike_even_halves = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> x(7);
    for (float& value : x) value = static_cast<float>(random()) / 4294967296.0f - 0.5f;
    INFO("seed " << seed << ", round " << round);
    const float pair = x[0] + x[1], four = pair + (x[2] + x[3]);
    REQUIRE(sum({x[0], x[1], x[2]}) == pair + x[2]);
    REQUIRE(sum({x[0], x[1], x[2], x[3]}) == four);
    REQUIRE(sum({x[0], x[1], x[2], x[3], x[4]}) == four + x[4]);
    REQUIRE(sum({x[0], x[1], x[2], x[3], x[4], x[5]}) == four + (x[4] + x[5]));
    REQUIRE(sum(x) == four + ((x[4] + x[5]) + x[6]));
    unlike_left_fold += sum(x) != (((((pair + x[2]) + x[3]) + x[4]) + x[5]) + x[6]);
    const float thirds = (x[0] + x[1]) + x[2];
    unlike_even_halves +=
        sum({x[0], x[1], x[2], x[3], x[4], x[5]}) != thirds + ((x[3] + x[4]) + x[5]);
  }
  INFO("seed " << seed);
  CHECK(unlike_left_fold > 20);
  CHECK(unlike_even_halves > 20);
}

TEST_CASE("narrow types accumulate in float32 and round once", "[reduce]") {
  // Each addend is half a unit in the last place of 1: rounding after each would stay at 1.
  const float half16 = std::ldexp(1.0f, -8);
  CHECK(reduced(DataType::kBfloat16, ReduceOp::kSum, {1, half16, half16}) == 1 + 2 * half16);
  const float half11 = std::ldexp(1.0f, -11);
  CHECK(reduced(DataType::kFloat16, ReduceOp::kSum, {1, half11, half11}) == 1 + 2 * half11);
  // The sum does not fit, the average does.
  CHECK(reduced(DataType::kFloat16, ReduceOp::kAvg, {60000, 60000}, 2) == 60000);
  CHECK(reduced(DataType::kFloat8E4M3, ReduceOp::kAvg, {448, 448, 448}, 3) == 448);
  CHECK(std::isnan(reduced(DataType::kFloat8E4M3, ReduceOp::kSum, {448, 448})));
  CHECK(reduced(DataType::kFloat8E5M2, ReduceOp::kSum, {57344, 57344}) == INFINITY);
}

TEST_CASE("products with a rank's own scale are not rounded before the sum", "[reduce]") {
  // In bfloat16, 1 + 2^-10 is 1; as a partial it is itself.
  const float scale = 1 + std::ldexp(1.0f, -10);
  const std::uint16_t one = 0x3f80;
  float product = 0;
  const Source source{reinterpret_cast<const std::byte*>(&one), Form::kContribution, true};
  const Target target{reinterpret_cast<std::byte*>(&product), Form::kPartial};
  reduce_reference({DataType::kBfloat16, ReduceOp::kPreMulSum, 2, scale, 1}, std::span(&source, 1),
                   std::span(&target, 1), 1);
  CHECK(product == scale);
  // The scale belongs to this operation: others ignore it.
  reduce_reference({DataType::kBfloat16, ReduceOp::kSum, 2, scale, 1}, std::span(&source, 1),
                   std::span(&target, 1), 1);
  CHECK(product == 1);
}

TEST_CASE("an average is divided once, when it becomes a result", "[reduce]") {
  const float values[] = {3, 4};
  const Source sources[] = {{reinterpret_cast<const std::byte*>(&values[0]), Form::kContribution},
                            {reinterpret_cast<const std::byte*>(&values[1]), Form::kContribution}};
  float partial = 0, result = 0, later = 0;
  const Target targets[] = {{reinterpret_cast<std::byte*>(&partial), Form::kPartial},
                            {reinterpret_cast<std::byte*>(&result), Form::kResult}};
  const Arithmetic average{DataType::kFloat32, ReduceOp::kAvg, 2, 1, 1};
  reduce_reference(average, sources, targets, 1);
  CHECK(partial == 7);
  CHECK(result == 3.5f);
  const Source source{reinterpret_cast<const std::byte*>(&partial), Form::kPartial};
  const Target target{reinterpret_cast<std::byte*>(&later), Form::kResult};
  reduce_reference(average, std::span(&source, 1), std::span(&target, 1), 1);
  CHECK(later == 3.5f);
}

TEST_CASE("a single unscaled source of the targets' form is copied bit for bit", "[reduce]") {
  // A signalling NaN, which arithmetic would quiet.
  const std::uint32_t bits = 0x7f800001;
  std::uint32_t copied = 0;
  const Source source{reinterpret_cast<const std::byte*>(&bits), Form::kPartial};
  const Target target{reinterpret_cast<std::byte*>(&copied), Form::kPartial};
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kPreMulSum}) {
    copied = 0;
    kernels::reduce({DataType::kBfloat16, op, 4, 3, 3}, std::span(&source, 1),
                    std::span(&target, 1), 1);
    CHECK(copied == bits);
    copied = 0;
    reduce_reference({DataType::kBfloat16, op, 4, 3, 3}, std::span(&source, 1),
                     std::span(&target, 1), 1);
    CHECK(copied == bits);
  }
}

}  // namespace tutti::kernels
