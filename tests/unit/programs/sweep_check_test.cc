// The sweep's verification: it accepts what the reference computes, and counts every element that
// was lost, doubled, misplaced or taken from another rank. Its options: sizes and words.
#include <cstring>
#include <vector>

#include "kernels/host/reduce.h"
#include "perf/sweep/check.h"
#include "support/catch.h"

namespace tutti::perf {
namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::size_t kCount = 1000;

struct Data {
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::byte> output;  // The output of rank `rank`.
};

/// All ranks' inputs, and the output of rank 1 by the reference.
Data computed(const Shape& shape, Check check) {
  Data data;
  const std::size_t element = size_of(shape.type);
  std::vector<kernels::Source> sources;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    auto& input = data.inputs.emplace_back(shape.input_elements() * element);
    fill(shape, check, rank, kSeed, input.data());
  }
  data.output.resize(shape.output_elements() * element);
  if (shape.collective == Collective::kAllGather) {
    for (std::size_t rank = 0; rank < data.inputs.size(); ++rank)
      std::memcpy(data.output.data() + rank * shape.count * element, data.inputs[rank].data(),
                  shape.count * element);
    return data;
  }
  const std::size_t offset =
      shape.collective == Collective::kReduceScatter ? shape.count * element : 0;
  for (const auto& input : data.inputs)
    sources.push_back({input.data() + offset, Form::kContribution, false});
  const kernels::Target target{data.output.data(), Form::kResult};
  kernels::reduce_reference({shape.type, shape.op, shape.ranks, 1, 1}, sources,
                            std::span(&target, 1), shape.count);
  return data;
}

std::size_t wrong(const Shape& shape, Check check, const Data& data) {
  return count_wrong(shape, check, 1, kSeed, data.output.data());
}

std::byte* element(Data& data, const Shape& shape, std::size_t index) {
  return data.output.data() + index * size_of(shape.type);
}

}  // namespace

TEST_CASE("right results have no wrong elements") {
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    for (const auto type : {DataType::kFloat32, DataType::kFloat64, DataType::kBfloat16,
                            DataType::kFloat16, DataType::kInt32, DataType::kInt8}) {
      for (const auto check : {Check::kValues, Check::kBits}) {
        const Shape shape{collective, type, ReduceOp::kSum, kCount, 3, 0};
        INFO(to_string(collective) << " " << to_string(type) << " " << static_cast<int>(check));
        CHECK(wrong(shape, check, computed(shape, check)) == 0);
      }
    }
  }
}

TEST_CASE("lost, doubled and misplaced elements are counted") {
  for (const auto collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather}) {
    const Shape shape{collective, DataType::kFloat32, ReduceOp::kSum, kCount, 3, 0};
    INFO(to_string(collective));
    const Data right = computed(shape, Check::kValues);

    Data lost = right;  // A tile that never arrived.
    std::memset(element(lost, shape, 128), 0, 64 * sizeof(float));
    CHECK(wrong(shape, Check::kValues, lost) >= 63);

    Data shifted = right;  // Everything one element off.
    std::memmove(element(shifted, shape, 1), element(shifted, shape, 0),
                 (shape.output_elements() - 1) * sizeof(float));
    CHECK(wrong(shape, Check::kValues, shifted) > shape.output_elements() * 9 / 10);

    Data swapped = right;  // Two lines in each other's place.
    std::memcpy(element(swapped, shape, 0), element(swapped, shape, 16), 64);
    CHECK(wrong(shape, Check::kValues, swapped) >= 15);
  }
}

TEST_CASE("a contribution that is missing or counted twice is seen at every element") {
  const Shape shape{Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kCount, 3, 0};
  const Data right = computed(shape, Check::kValues);
  for (const float times : {-1.0F, 1.0F}) {
    Data other = right;
    std::size_t differs = 0;
    for (std::size_t i = 0; i < kCount; ++i) {
      float sum = 0, term = 0;
      std::memcpy(&sum, element(other, shape, i), sizeof(sum));
      std::memcpy(&term, right.inputs[2].data() + i * sizeof(term), sizeof(term));
      differs += term != 0 ? 1 : 0;
      sum += times * term;
      std::memcpy(element(other, shape, i), &sum, sizeof(sum));
    }
    CHECK(differs > kCount * 9 / 10);
    CHECK(wrong(shape, Check::kValues, other) == differs);
  }
}

TEST_CASE("bits are compared to the last one") {
  const Shape shape{Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, kCount, 5, 0};
  Data data = computed(shape, Check::kBits);
  *element(data, shape, 500) ^= std::byte{1};
  CHECK(wrong(shape, Check::kBits, data) == 1);
}

TEST_CASE("sizes as people write them") {
  CHECK(parse_size("8") == 8);
  CHECK(parse_size("64K") == 65536);
  CHECK(parse_size("1.5M") == 1572864);
  CHECK(parse_size("2G") == std::size_t{2} << 30);
  for (const char* text : {"", "K", "8Q", "-1", "1e99G", "8 K", "99999999999999999999"})
    CHECK(!parse_size(text));
}

TEST_CASE("names of types and operations come back") {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  CHECK(parse_type(type_name(DataType::enumerator)) == DataType::enumerator);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
#define TUTTI_REDUCE_OP(enumerator, text, value, ...) \
  CHECK(parse_op(op_name(ReduceOp::enumerator)) == ReduceOp::enumerator);
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
}

}  // namespace tutti::perf
