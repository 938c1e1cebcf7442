// File: unit/exec/reduce_contract_test.cc: the reference, by which all else is judged, is what
// docs/bitwise-contract.md says, in examples worked out by hand.
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string_view>
#include <type_traits>
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

/// The result for one integer that each rank contributes to, by the reference.
template <class T>
T reduced_integers(DataType type, ReduceOp op, const std::vector<T>& values) {
  std::vector<Source> sources;
  for (const T& value : values)
    sources.push_back({reinterpret_cast<const std::byte*>(&value), Form::kContribution});
  T result = 0;
  const Target target{reinterpret_cast<std::byte*>(&result), Form::kResult};
  const int ranks = static_cast<int>(values.size());
  reduce_reference({type, op, ranks, 1, 1}, sources, std::span(&target, 1), 1);
  return result;
}

template <class T>
void check_integers(DataType type) {
  INFO(to_string(type));
  constexpr T kLeast = std::numeric_limits<T>::min(), kMost = std::numeric_limits<T>::max();
  constexpr bool kSigned = std::is_signed_v<T>;
  // The bits 10...0: the least of all numbers with a sign, larger than half of them without.
  constexpr T kHigh = kSigned ? kLeast : T{kMost / 2 + 1};
  const auto of = [&](ReduceOp op, const std::vector<T>& values) {
    return reduced_integers<T>(type, op, values);
  };
  CHECK(of(ReduceOp::kMax, {kHigh, 1, 2}) == (kSigned ? T{2} : kHigh));
  CHECK(of(ReduceOp::kMin, {kHigh, 1, 2}) == (kSigned ? kHigh : T{1}));
  CHECK(of(ReduceOp::kSum, {kMost, 1}) == kLeast);
  CHECK(of(ReduceOp::kProd, {kMost, kMost}) == T{1});
  // The sum wraps to the bits 1...10, which are -2 with a sign.
  CHECK(of(ReduceOp::kAvg, {kMost, kMost}) == (kSigned ? static_cast<T>(-1) : T{kMost / 2}));
  CHECK(of(ReduceOp::kAvg, {static_cast<T>(-4), 1}) ==
        (kSigned ? static_cast<T>(-1) : T{(kMost - 2) / 2}));
  CHECK(of(ReduceOp::kAnd, {kHigh, static_cast<T>(-1)}) == kHigh);
  CHECK(of(ReduceOp::kOr, {kHigh, kMost}) == static_cast<T>(-1));
  CHECK(of(ReduceOp::kXor, {kMost, 5, 1}) == T{kMost - 4});
}

/// By the name of the type, so that a wrong kind or a wrong Element is seen.
template <DataType type>
void check_if_integer() {
  constexpr std::string_view kName = to_string(type);
  constexpr std::size_t kBytes = size_of(type);
  if constexpr (kName.starts_with("int") || kName.starts_with("uint")) {
    using Wide = std::conditional_t<kBytes == 4, std::int32_t, std::int64_t>;
    using Narrow = std::conditional_t<kBytes == 1, std::int8_t, std::int16_t>;
    using Signed = std::conditional_t<(kBytes < 4), Narrow, Wide>;
    using T = std::conditional_t<kName.starts_with('u'), std::make_unsigned_t<Signed>, Signed>;
    check_integers<T>(type);
  }
}

}  // namespace

TEST_CASE("integers wrap, divide towards zero, and compare as their names say", "[reduce]") {
#define TUTTI_DATA_TYPE(enumerator, ...) check_if_integer<DataType::enumerator>();
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
}

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
