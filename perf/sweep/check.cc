#include "perf/sweep/check.h"

#include <cmath>
#include <cstring>

#include "kernels/host/reduce.h"

namespace tutti::perf {
namespace {

constexpr std::size_t kBlock = 4096;

std::uint64_t hash(std::uint64_t seed, int rank, std::size_t index) {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15ULL +
                    static_cast<std::uint64_t>(rank) * 0xd6e8feb86659fd93ULL + index;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ULL;
  x = (x ^ x >> 29) * 0xd6e8feb86659fd93ULL;
  return x ^ x >> 32;
}

/// Values are in 0 ... this - 1, such that `ranks` of them add up exactly.
template <DataType type>
std::uint64_t range_of(std::uint64_t ranks) {
  if constexpr (is_integer(type)) {  // Sums of small ones wrap, in the library as here.
    return std::uint64_t{1} << std::min<std::size_t>(16, 8 * size_of(type) - 1);
  } else if constexpr (size_of(type) == 1) {
    return 3;
  } else if constexpr (type == DataType::kFloat16) {
    return std::max<std::uint64_t>(2, 1024 / (3 * ranks));
  } else if constexpr (type == DataType::kBfloat16) {
    return std::max<std::uint64_t>(2, 256 / (3 * ranks));
  } else {
    static_assert(type == DataType::kFloat32 || type == DataType::kFloat64, "a range for this");
    return 1 << 16;
  }
}
std::uint64_t range_of(DataType type, int ranks) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, ...) \
  case DataType::enumerator:             \
    return range_of<DataType::enumerator>(static_cast<std::uint64_t>(ranks));
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return 0;
}

/// A real number in the bits of `type`, rounded once.
class Encoder {
 public:
  explicit Encoder(DataType type) : type_(type) {}
  void operator()(double value, std::byte* to) const {
    if (is_integer(type_)) {  // Little-endian: the lowest bytes.
      const auto integer = static_cast<std::int64_t>(value);
      std::memcpy(to, &integer, size_of(type_));
      return;
    }
    if (accumulator_of(type_) == DataType::kFloat64) {
      std::memcpy(to, &value, sizeof(value));
      return;
    }
    const auto partial = static_cast<float>(value);
    const kernels::Source source{reinterpret_cast<const std::byte*>(&partial), Form::kPartial,
                                 false};
    const kernels::Target target{to, Form::kContribution};
    kernels::reduce_reference({.type = type_}, std::span(&source, 1), std::span(&target, 1), 1);
  }

 private:
  DataType type_;
};

/// A rank's contribution at an index, as a number.
double contribution(const Shape& shape, std::uint64_t seed, int rank, std::size_t index) {
  const std::uint64_t h = hash(seed, rank, index);
  // One factor of 2 per product on average, however many ranks: it stays within 64 bits.
  if (shape.op == ReduceOp::kProd)
    return h % std::max<std::uint64_t>(8, static_cast<std::uint64_t>(shape.ranks)) == 0 ? 2 : 1;
  return static_cast<double>(h % range_of(shape.type, shape.ranks));
}

double wrapped(DataType type, double value) {
  if (!is_integer(type) || size_of(type) == sizeof(std::int64_t)) return value;
  const std::size_t bits = 8 * size_of(type);
  const auto all = static_cast<std::int64_t>(value);
  const std::int64_t low = all & ((std::int64_t{1} << bits) - 1);
  const bool negative = kind_of(type) == NumberKind::kSigned && low >> (bits - 1) != 0;
  return static_cast<double>(negative ? low - (std::int64_t{1} << bits) : low);
}

/// The exact reduction at an index of the inputs, of the first `summed` ranks.
double reduction(const Shape& shape, int summed, std::uint64_t seed, std::size_t index) {
  double value = contribution(shape, seed, 0, index);
  if (shape.op == ReduceOp::kPreMulSum) value *= scale_of(0);
  for (int rank = 1; rank < summed; ++rank) {
    const double next = contribution(shape, seed, rank, index);
    const auto a = static_cast<std::int64_t>(value), b = static_cast<std::int64_t>(next);
    switch (shape.op) {
      case ReduceOp::kSum:
      case ReduceOp::kAvg: value += next; break;
      case ReduceOp::kPreMulSum: value += scale_of(rank) * next; break;
      case ReduceOp::kProd: value *= next; break;
      case ReduceOp::kMax: value = std::max(value, next); break;
      case ReduceOp::kMin: value = std::min(value, next); break;
      case ReduceOp::kAnd: value = static_cast<double>(a & b); break;
      case ReduceOp::kOr: value = static_cast<double>(a | b); break;
      case ReduceOp::kXor: value = static_cast<double>(a ^ b); break;
    }
  }
  if (shape.op != ReduceOp::kAvg) return value;
  value = wrapped(shape.type, value);
  if (is_integer(shape.type)) return std::trunc(value / shape.ranks);
  // Divided in the accumulator, as the library does.
  return accumulator_of(shape.type) == DataType::kFloat32
             ? static_cast<double>(static_cast<float>(value) / static_cast<float>(shape.ranks))
             : value / shape.ranks;
}

/// An arbitrary real, for comparing bits.
void encode_real(const Encoder& encode, std::uint64_t h, std::byte* to) {
  encode(std::ldexp(static_cast<double>(h % 4001) - 2000, static_cast<int>(h >> 32 & 7) - 10), to);
}

void fill_block(const Shape& shape, Check check, int rank, std::uint64_t seed, std::size_t first,
                std::size_t count, std::byte* to) {
  const Encoder encode(shape.type);
  const std::size_t element = size_of(shape.type);
  for (std::size_t i = 0; i < count; ++i) {
    if (check == Check::kBits)
      encode_real(encode, hash(seed, rank, first + i), to + i * element);
    else
      encode(contribution(shape, seed, rank, first + i), to + i * element);
  }
}

/// The values that rank's output has to hold at [first, first + count).
void expect_block(const Shape& shape, Check check, int rank, std::uint64_t seed, std::size_t first,
                  std::size_t count, std::byte* to) {
  const std::size_t element = size_of(shape.type);
  const CollectiveTraits mine = traits_of(shape.collective);
  const std::size_t own = static_cast<std::size_t>(rank) * shape.count;
  if (!mine.reduces()) {
    const std::size_t offset = mine.input_each ? own : 0;
    for (std::size_t i = 0; i < count; ++i) {  // A block at a time may span two ranks' parts.
      const int from = mine.root_input ? shape.root : static_cast<int>((first + i) / shape.count);
      fill_block(shape, check, from, seed, offset + (first + i) % shape.count, 1, to + i * element);
    }
    return;
  }
  const std::size_t start = first + (mine.input_each ? own : 0);
  const int summed = summed_ranks(shape.collective, rank, shape.ranks);
  if (check != Check::kBits) {
    const Encoder encode(shape.type);
    for (std::size_t i = 0; i < count; ++i)
      encode(reduction(shape, summed, seed, start + i), to + i * element);
    return;
  }
  const bool scaled = shape.op == ReduceOp::kPreMulSum;
  const std::size_t wide = element_bytes(shape.type, scaled ? Form::kPartial : Form::kContribution);
  std::vector<std::vector<std::byte>> inputs(static_cast<std::size_t>(summed));
  std::vector<kernels::Source> sources;
  for (int r = 0; r < summed; ++r) {
    auto& input = inputs[static_cast<std::size_t>(r)];
    input.resize(count * std::max(wide, element));
    fill_block(shape, check, r, seed, start, count, input.data());
    if (scaled) {
      std::vector<std::byte> partial(count * wide);
      const kernels::Source source{input.data(), Form::kContribution, true};
      const kernels::Target target{partial.data(), Form::kPartial};
      const double scale = scale_of(r);
      kernels::reduce_reference(
          {shape.type, shape.op, shape.ranks, scale, static_cast<std::int64_t>(scale)},
          std::span(&source, 1), std::span(&target, 1), count);
      input.swap(partial);
    }
    sources.push_back({input.data(), scaled ? Form::kPartial : Form::kContribution, false});
  }
  const kernels::Target target{to, Form::kResult};
  kernels::reduce_reference({shape.type, shape.op, shape.ranks, 1, 1}, sources,
                            std::span(&target, 1), count);
}

}  // namespace

void fill(const Shape& shape, Check check, int rank, std::uint64_t seed, std::byte* input) {
  fill_block(shape, check, rank, seed, 0, shape.input_elements(), input);
}

std::size_t count_wrong(const Shape& shape, Check check, int rank, std::uint64_t seed,
                        const std::byte* output) {
  if (!has_output(shape.collective, rank, shape.root)) return 0;
  const std::size_t element = size_of(shape.type), total = shape.output_elements();
  std::vector<std::byte> expected(kBlock * element);
  std::size_t wrong = 0;
  for (std::size_t first = 0; first < total; first += kBlock) {
    const std::size_t count = std::min(kBlock, total - first);
    expect_block(shape, check, rank, seed, first, count, expected.data());
    if (std::memcmp(expected.data(), output + first * element, count * element) == 0) continue;
    for (std::size_t i = 0; i < count; ++i) {
      wrong +=
          std::memcmp(expected.data() + i * element, output + (first + i) * element, element) != 0
              ? 1
              : 0;
    }
  }
  return wrong;
}

Deviation deviation_of(const Shape& shape, const Wire& wire, int rank, std::uint64_t seed,
                       const std::byte* output) {
  const double factor = shape.op == ReduceOp::kPreMulSum ? 3 : 1;  // The most of scale_of.
  const double values = factor * static_cast<double>(range_of(shape.type, shape.ranks));
  const bool sums = reduces(shape.collective);
  Deviation found{0, error_bound(wire, sums ? shape.ranks : 1, values)};
  if (!has_output(shape.collective, rank, shape.root)) return found;
  const std::size_t total = shape.output_elements();
  std::vector<std::byte> expected(kBlock * sizeof(float));
  for (std::size_t first = 0; first < total; first += kBlock) {
    const std::size_t count = std::min(kBlock, total - first);
    expect_block(shape, Check::kValues, rank, seed, first, count, expected.data());
    for (std::size_t i = 0; i < count; ++i) {
      float want = 0, got = 0;
      std::memcpy(&want, expected.data() + i * sizeof(float), sizeof(float));
      std::memcpy(&got, output + (first + i) * sizeof(float), sizeof(float));
      const double off = std::abs(double{got} - double{want});
      found.largest = std::isnan(off) ? HUGE_VAL : std::max(found.largest, off);
    }
  }
  return found;
}

}  // namespace tutti::perf
