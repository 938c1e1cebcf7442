// File: unit/exec/wire_test.cc: wire formats: vectors equal the definitions bit for bit on every
// instruction set of this machine, rounding keeps its bound and its mean, and a value that was
// rounded stays what it is.
#include "kernels/host/wire.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/host/targets.h"
#include "kernels/host/wire_table.h"
#include "support/catch.h"
#include "tutti/wire.h"
// After the choice of instruction sets.
#include <hwy/highway.h>

namespace tutti::kernels {
namespace {

constexpr WireFormat kFormats[] = {WireFormat::kFloat16, WireFormat::kBfloat16, WireFormat::kInt8,
                                   WireFormat::kFloat8};
constexpr Rounding kRoundings[] = {Rounding::kNearest, Rounding::kStochastic};

std::vector<Wire> all_wires() {
  std::vector<Wire> wires;
  for (const WireFormat format : kFormats) {
    for (const Rounding rounding : kRoundings) wires.emplace_back(format, rounding);
  }
  return wires;
}

/// One table for each instruction set of this machine.
std::vector<WireTable> all_tables() {
  std::vector<WireTable> tables;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    tables.push_back(make_wire_table());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return tables;
}

/// What came of some values. Bytes that were not written are 0xa5.
struct Encoded {
  std::vector<std::byte> scales, code, decoded;
  float value(std::size_t index) const {
    float value = 0;
    std::memcpy(&value, decoded.data() + index * sizeof(float), sizeof(float));
    return value;
  }
};

template <class Encode>
Encoded encoded_by(Encode&& encode, const Wire& wire, const std::vector<float>& values,
                   std::uint64_t stream, std::uint64_t element = 0) {
  const std::size_t n = values.size();
  Encoded out{
      std::vector(scale_bytes(wire.format, n) + 1, std::byte{0xa5}),
      std::vector(n * static_cast<std::size_t>(wire_bits(wire.format)) / 8 + 1, std::byte{0xa5}),
      std::vector(n * sizeof(float) + 1, std::byte{0xa5})};
  encode(Encoding{.from = reinterpret_cast<const std::byte*>(values.data()),
                  .count = n,
                  .stream = stream,
                  .element = element,
                  .scales = out.scales.data(),
                  .to = out.code.data(),
                  .decoded = out.decoded.data()});
  return out;
}
Encoded encoded(const Wire& wire, const std::vector<float>& values, std::uint64_t stream) {
  return encoded_by([&](const Encoding& part) { encode(wire, part); }, wire, values, stream);
}

/// The same bits, but for the payload of a NaN.
bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  if (a.size() != b.size() || a.back() != b.back()) return false;
  for (std::size_t i = 0; i + 1 < a.size(); i += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data() + i, sizeof(x));
    std::memcpy(&y, b.data() + i, sizeof(y));
    const bool nan = std::isnan(x) && std::isnan(y);
    if (!nan && std::bit_cast<std::uint32_t>(x) != std::bit_cast<std::uint32_t>(y)) return false;
  }
  return true;
}

/// 0: values of one magnitude, 1: of all magnitudes, 2: any bits, 3: of about 1.
std::vector<float> draw(std::mt19937_64& random, std::size_t count, int kind) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-140, 120);
  const float scale = std::ldexp(1.0F, exponent(random));
  std::vector<float> values(count);
  for (float& value : values) {
    if (kind == 3) value = normal(random);
    if (kind == 0) value = normal(random) * scale;
    if (kind == 1) value = std::ldexp(normal(random), exponent(random));
    if (kind == 2) value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  }
  return values;
}

/// The most by which rounding may change a value of a block, and what is too small to be asked.
double step_of(WireFormat format, double value, double largest) {
  switch (format) {
    case WireFormat::kFloat16: return std::max(std::abs(value) * 0x1p-10, 0x1p-24);
    case WireFormat::kBfloat16: return std::max(std::abs(value) * 0x1p-7, 0x1p-133);
    case WireFormat::kInt8: return std::max(largest * 2 / 127, 0x1p-126);
    case WireFormat::kFloat8:
      return std::max({std::abs(value) / 8, largest * 2 / 448 * 0x1p-9, 0x1p-126});
    case WireFormat::kPlain: break;
  }
  return 0;
}

TEST_CASE("names of wires are read back") {
  CHECK(to_string(Wire(WireFormat::kInt8)) == "int8");
  CHECK(to_string(Wire(WireFormat::kInt8, Rounding::kNearest)) == "int8:nearest");
  CHECK(to_string(Wire(WireFormat::kBfloat16, Rounding::kStochastic)) == "bfloat16:stochastic");
  for (const Wire& wire : all_wires()) CHECK(parse_wire(to_string(wire)) == wire);
  CHECK(parse_wire("plain") == Wire{});
  for (const char* const text : {"", "int4", "int8:", "int8:up", "plain:nearest", ":nearest"})
    CHECK_FALSE(parse_wire(text).has_value());
}

TEST_CASE("encoding and decoding equal the definitions on every instruction set") {
  std::mt19937_64 random(7);
  for (const WireTable& table : all_tables()) {
    for (const Wire& wire : all_wires()) {
      const auto format = static_cast<std::size_t>(wire.format);
      const auto rounding = static_cast<std::size_t>(wire.rounding);
      for (int round = 0; round < 300; ++round) {
        const std::size_t count = random() % 100;
        const auto values = draw(random, count, round % 3);
        const std::uint64_t stream = random(), element = random();
        const Encoded fast =
            encoded_by(table.encode[format][rounding], wire, values, stream, element);
        const Encoded right =
            encoded_by([&](const Encoding& part) { encode_reference(wire, part); }, wire, values,
                       stream, element);
        INFO(to_string(wire) << ", round " << round << ", " << count << " elements");
        REQUIRE(fast.scales == right.scales);
        REQUIRE(fast.code == right.code);
        REQUIRE(same(fast.decoded, right.decoded));
        std::vector<std::byte> back(fast.decoded.size(), std::byte{0xa5});
        table.decode[format]({fast.scales.data(), fast.code.data(), count, back.data()});
        REQUIRE(same(back, right.decoded));
        decode_reference(wire, {fast.scales.data(), fast.code.data(), count, back.data()});
        REQUIRE(same(back, right.decoded));
      }
    }
  }
}

TEST_CASE("a value that was rounded does not change when it is encoded again") {
  std::mt19937_64 random(8);
  for (const Wire& wire : all_wires()) {
    for (int round = 0; round < 2000; ++round) {
      const auto values = draw(random, kWireBlock, round % 3);
      const Encoded once = encoded(wire, values, random());
      std::vector<float> decoded(kWireBlock);
      std::memcpy(decoded.data(), once.decoded.data(), kWireBlock * sizeof(float));
      const Encoded twice = encoded(wire, decoded, random());
      INFO(to_string(wire) << ", round " << round);
      REQUIRE(same(once.decoded, twice.decoded));
    }
  }
}

TEST_CASE("a value of the format stays, whatever is drawn") {
  std::uint64_t stream = 0;  // Its first element draws the least there is.
  while (random_bits(block_key(stream, 0), 0) >> 8 != 0) ++stream;
  std::vector<float> values(kWireBlock, 127);
  values[0] = 3;
  for (const WireTable& table : all_tables()) {
    const Wire wire(WireFormat::kInt8);
    const auto encode = table.encode[static_cast<std::size_t>(wire.format)][1];
    CHECK(encoded_by(encode, wire, values, stream).value(0) == 3);
  }
  CHECK(encode_int8(3, true, 0) == 3);
  CHECK(encode_float8(3 * 0x1p-9F, true, 0) == 3);
}

TEST_CASE("rounding keeps its bound") {
  std::mt19937_64 random(9);
  for (const Wire& wire : all_wires()) {
    for (int round = 0; round < 2000; ++round) {
      const auto values = draw(random, kWireBlock, round % 2);
      double largest = 0;
      for (const float value : values) largest = std::max<double>(largest, std::abs(value));
      if (largest > 0x1p127 || (wire.format == WireFormat::kFloat16 && largest > 65504)) continue;
      const Encoded out = encoded(wire, values, random());
      const double share = wire.rounding == Rounding::kNearest ? 0.5 : 1;
      for (std::size_t i = 0; i < kWireBlock; ++i) {
        INFO(to_string(wire) << ", round " << round << ", " << values[i] << " of " << largest);
        REQUIRE(std::abs(double{out.value(i)} - double{values[i]}) <=
                share * step_of(wire.format, values[i], largest));
      }
    }
  }
}

TEST_CASE(
    "stochastic rounding has the value as its mean, and elements don't depend on each other") {
  constexpr int kDraws = 20'000;
  std::mt19937_64 random(10);
  for (const WireFormat format : kFormats) {
    const Wire wire(format, Rounding::kStochastic);
    const auto values = draw(random, kWireBlock, 3);
    std::vector<double> sum(kWireBlock), square(kWireBlock), product(kWireBlock);
    for (int i = 0; i < kDraws; ++i) {
      const Encoded out = encoded(wire, values, stream_key(static_cast<std::uint64_t>(i), 3));
      double before = 0;
      for (std::size_t at = 0; at < kWireBlock; ++at) {
        const double error = double{out.value(at)} - double{values[at]};
        sum[at] += error;
        square[at] += error * error;
        product[at] += error * before;
        before = error;
      }
    }
    double largest = 0;
    for (std::size_t at = 0; at < kWireBlock; ++at) {
      // 5 standard deviations of a mean: once in 10^6 draws of 128 elements by chance alone.
      const double deviation = std::sqrt(square[at]);
      INFO(to_string(wire) << ", element " << at << ": " << values[at]);
      CHECK(std::abs(sum[at]) <= 5 * deviation);
      if (at > 0)
        CHECK(std::abs(product[at]) <= 5 * std::sqrt(square[at] * square[at - 1] / kDraws));
      largest = std::max(largest, square[at]);
    }
    CHECK(largest > 0);  // They were rounded.
  }
}

TEST_CASE("a value that is not finite makes its block NaN, or is kept") {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const Wire& wire : all_wires()) {
      std::vector<float> values(3 * kWireBlock, 1.0F);
      values[kWireBlock + 5] = bad;
      const Encoded out = encoded(wire, values, 1);
      INFO(to_string(wire) << ", " << bad);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool of_block = has_scales(wire.format) && i / kWireBlock == 1;
        const bool nan = of_block || std::isnan(values[i]);
        REQUIRE(std::isnan(out.value(i)) == nan);
        if (!nan) REQUIRE(out.value(i) == values[i]);
      }
    }
  }
}

TEST_CASE("what fits a slot is a multiple of a block, and fits") {
  for (const WireFormat format : kFormats) {
    for (std::size_t bytes = 0; bytes < 5000; ++bytes) {
      const std::size_t count = encoded_elements(format, bytes);
      INFO(to_string(format) << ", " << bytes << " bytes: " << count);
      REQUIRE(count % kWireBlock == 0);
      REQUIRE(encoded_bytes(format, count) <= bytes);
      REQUIRE(encoded_bytes(format, count + kWireBlock) > bytes);
    }
  }
}

}  // namespace
}  // namespace tutti::kernels
