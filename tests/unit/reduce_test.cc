// The fast kernels equal the scalar reference bit for bit, in every way in which a step can call
// them.
#include "kernels/host/reduce.h"

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "support/catch.h"

namespace tutti::kernels {
namespace {

using Bytes = std::vector<std::byte>;

/// Random elements of a form: all bit patterns for contributions, reals (and some NaN, zeros,
/// infinities) for float partials.
Bytes random_elements(std::mt19937_64& random, DataType type, Form form, std::size_t count) {
  Bytes data(count * element_bytes(type, form) + 64);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  if (accumulator_of(type) != DataType::kFloat32 || element_bytes(type, form) != 4) return data;
  for (std::size_t i = 0; i < count; ++i) {
    float value = std::ldexp(static_cast<float>(random() % 4001) - 2000.0F,
                             static_cast<int>(random() % 24) - 12);
    const auto special = random() % 40;
    if (special == 0) value = std::nanf("");
    if (special == 1) value = -0.0F;
    if (special == 2) value = INFINITY;
    std::memcpy(data.data() + i * 4, &value, 4);
  }
  return data;
}

/// Equal bits, or both NaN.
bool same(DataType type, Form form, const std::byte* a, const std::byte* b) {
  const std::size_t bytes = element_bytes(type, form);
  if (std::memcmp(a, b, bytes) == 0) return true;
  if (is_integer(type)) return false;
  const auto is_nan = [&](const std::byte* from) {
    if (type == DataType::kFloat64) {
      double value;
      std::memcpy(&value, from, sizeof(value));
      return std::isnan(value);
    }
    float value = 0;  // Widened by the reference: one contribution to one partial.
    const Source source{from, form, false};
    const Target target{reinterpret_cast<std::byte*>(&value), Form::kPartial};
    reduce_reference({.type = type, .op = ReduceOp::kSum}, std::span(&source, 1),
                     std::span(&target, 1), 1);
    return std::isnan(value);
  };
  return is_nan(a) && is_nan(b);
}

struct Setup {
  Arithmetic arithmetic;
  std::size_t count;
  std::vector<Form> sources, targets;
  std::size_t misalign;
  bool scale, in_place;
  Stores stores;
};

std::string compare(const Setup& setup, std::mt19937_64& random) {
  const DataType type = setup.arithmetic.type;
  std::vector<Bytes> inputs;
  std::vector<Source> sources, reference_sources;
  for (const Form form : setup.sources)
    inputs.push_back(random_elements(random, type, form, setup.count));
  const std::vector<Bytes> kept = inputs;
  for (std::size_t s = 0; s < inputs.size(); ++s) {
    sources.push_back({inputs[s].data(), setup.sources[s], setup.scale && s == 0});
    reference_sources.push_back({kept[s].data(), setup.sources[s], setup.scale && s == 0});
  }
  std::vector<Bytes> fast(setup.targets.size()), slow(setup.targets.size());
  std::vector<Target> fast_targets, slow_targets;
  for (std::size_t t = 0; t < setup.targets.size(); ++t) {
    const std::size_t bytes = setup.count * element_bytes(type, setup.targets[t]);
    fast[t].assign(bytes + setup.misalign + 64, std::byte{0x5a});
    slow[t].assign(bytes + 64, std::byte{0x5a});
    fast_targets.push_back({fast[t].data() + setup.misalign, setup.targets[t]});
    slow_targets.push_back({slow[t].data(), setup.targets[t]});
  }
  const bool in_place =
      setup.in_place && setup.sources[0] != Form::kPartial && setup.targets[0] == Form::kResult;
  if (in_place) fast_targets[0].data = inputs[0].data();
  reduce_reference(setup.arithmetic, reference_sources, slow_targets, setup.count);
  reduce(setup.arithmetic, sources, fast_targets, setup.count, setup.stores);
  for (std::size_t t = 0; t < setup.targets.size(); ++t) {
    const std::size_t element = element_bytes(type, setup.targets[t]);
    for (std::size_t i = 0; i < setup.count; ++i) {
      if (!same(type, setup.targets[t], fast_targets[t].data + i * element,
                slow_targets[t].data + i * element)) {
        return "target " + std::to_string(t) + " element " + std::to_string(i);
      }
    }
    const std::size_t end = setup.count * element;
    if (!(in_place && t == 0) && fast_targets[t].data[end] != std::byte{0x5a})
      return "wrote past the end";
  }
  return "";
}

Setup random_setup(std::mt19937_64& random, DataType type, ReduceOp op, std::size_t sources) {
  constexpr std::size_t kCounts[] = {1,  3,  7,  8,   15,  16,  17,  31,   33,
                                     63, 64, 65, 127, 255, 256, 257, 1000, 4097};
  Setup setup{{type, op, static_cast<int>(sources), 1.5, 3},
              kCounts[random() % std::size(kCounts)],
              {},
              {},
              0,
              false,
              false,
              Stores::kCached};
  const bool mixed = random() % 4 == 0, wide = random() % 3 == 0, to_wide = random() % 4 == 0;
  for (std::size_t s = 0; s < sources; ++s) {
    setup.sources.push_back((mixed ? random() % 2 == 0 : wide) ? Form::kPartial
                                                               : Form::kContribution);
  }
  const std::size_t targets = 1 + random() % 4;
  for (std::size_t t = 0; t < targets; ++t) {
    setup.targets.push_back((mixed ? random() % 2 == 0 : to_wide) ? Form::kPartial : Form::kResult);
  }
  setup.misalign = random() % 3 == 0 ? size_of(type) * (random() % 9) : 0;
  setup.scale = op == ReduceOp::kPreMulSum;
  setup.in_place = random() % 2 == 0;
  setup.stores = random() % 2 == 0 ? Stores::kStreaming : Stores::kCached;
  return setup;
}

TEST_CASE("reduce equals the reference for every type, operation, arity, form and alignment") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  std::size_t compared = 0;
  for (int t = 0; t < 12; ++t) {
    for (int o = 0; o < 9; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!is_supported(type, op)) continue;
      for (const std::size_t sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 16, 17, 33}) {
        for (int i = 0; i < 6; ++i) {
          const Setup setup = random_setup(random, type, op, sources);
          const std::string wrong = compare(setup, random);
          INFO(to_string(type) << " " << to_string(op) << ", " << sources << " sources, "
                               << setup.targets.size() << " targets, count " << setup.count
                               << ", misalign " << setup.misalign << ", seed " << seed);
          REQUIRE(wrong == "");
          ++compared;
        }
      }
    }
  }
  CHECK(compared > 5000);
}

TEST_CASE("the order is the balanced tree, not a fold from the left") {
  // (1e8 + 1) + (-1e8 + 1) loses both ones; from the left one survives.
  const float values[] = {1e8F, 1.0F, -1e8F, 1.0F};
  float result = 0;
  std::vector<Source> sources;
  for (const float& value : values)
    sources.push_back({reinterpret_cast<const std::byte*>(&value), Form::kContribution, false});
  const Target target{reinterpret_cast<std::byte*>(&result), Form::kResult};
  reduce({.type = DataType::kFloat32, .op = ReduceOp::kSum, .rank_count = 4}, sources,
         std::span(&target, 1), 1);
  CHECK(result == 0.0F);
  CHECK(((values[0] + values[1]) + values[2]) + values[3] == 1.0F);
}

/// The nearest value of a small float, found by trying all of them: independent of the conversion's
/// code.
template <class Code>
void check_rounding(DataType type, int codes) {
  std::vector<float> decoded(static_cast<std::size_t>(codes));
  for (int code = 0; code < codes; ++code) {
    const auto bits = static_cast<Code>(code);
    const Source source{reinterpret_cast<const std::byte*>(&bits), Form::kContribution, false};
    const Target target{reinterpret_cast<std::byte*>(&decoded[static_cast<std::size_t>(code)]),
                        Form::kPartial};
    reduce_reference({.type = type, .op = ReduceOp::kSum}, std::span(&source, 1),
                     std::span(&target, 1), 1);
  }
  std::mt19937_64 random(Catch::rngSeed());
  for (int i = 0; i < 3000; ++i) {
    const float value = std::ldexp(static_cast<float>(random() % 100001) / 100000.0F,
                                   static_cast<int>(random() % 16) - 8);
    Code code{};
    const Source source{reinterpret_cast<const std::byte*>(&value), Form::kPartial, false};
    const Target target{reinterpret_cast<std::byte*>(&code), Form::kContribution};
    reduce_reference({.type = type, .op = ReduceOp::kSum}, std::span(&source, 1),
                     std::span(&target, 1), 1);
    const double error = std::abs(static_cast<double>(decoded[code]) - value);
    for (int other = 0; other < codes / 2; ++other) {  // The positive half.
      const float candidate = decoded[static_cast<std::size_t>(other)];
      if (!std::isfinite(candidate)) continue;
      const double distance = std::abs(static_cast<double>(candidate) - value);
      INFO(to_string(type) << " of " << value << ": got code " << code << ", nearer is " << other);
      if (distance < error) REQUIRE(false);
      if (distance == error && other != code) REQUIRE(code % 2 == 0);  // Ties go to even.
    }
  }
}

TEST_CASE("conversions round to the nearest value, ties to even") {
  check_rounding<std::uint8_t>(DataType::kFloat8E4M3, 256);
  check_rounding<std::uint8_t>(DataType::kFloat8E5M2, 256);
}

TEST_CASE("every 8- and 16-bit float survives widening and narrowing") {
  for (const DataType type :
       {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    const std::size_t count = size_of(type) == 1 ? 256 : 65536;
    Bytes codes(count * size_of(type)), back(codes.size());
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(codes.data() + i * size_of(type), &i, size_of(type));
    std::vector<float> wide(count);
    const Source narrow_source{codes.data(), Form::kContribution, false};
    const Target wide_target{reinterpret_cast<std::byte*>(wide.data()), Form::kPartial};
    const Source wide_source{reinterpret_cast<std::byte*>(wide.data()), Form::kPartial, false};
    const Target narrow_target{back.data(), Form::kContribution};
    reduce({.type = type, .op = ReduceOp::kSum}, std::span(&narrow_source, 1),
           std::span(&wide_target, 1), count);
    reduce({.type = type, .op = ReduceOp::kSum}, std::span(&wide_source, 1),
           std::span(&narrow_target, 1), count);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = i * size_of(type);
      wrong += same(type, Form::kContribution, codes.data() + at, back.data() + at) ? 0 : 1;
    }
    INFO(to_string(type));
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace tutti::kernels
