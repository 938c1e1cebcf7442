// kernels/host/accumulate.h: the values, for every type and operation, and that none is lost.
#include "kernels/host/accumulate.h"

#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "kernels/host/reduce.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/kinds.h"

namespace tutti::kernels {
namespace {

constexpr std::size_t kCounts[] = {1, 7, 256, 257, 1000};

/// Numbers that are none of the many NaNs, of which any may come out.
std::vector<std::byte> numbers(DataType type, std::size_t count, int rank) {
  std::vector<std::byte> data(count * size_of(type));
  test::fill({.type = type, .count = count}, rank, 7, data.data());
  return data;
}

TEST_CASE("accumulate is what the reference makes of both, and touches nothing else") {
  for (const DataType type : test::all_types()) {
    for (const ReduceOp op : test::all_ops()) {
      if (!may_accumulate(type, op)) continue;
      for (const std::size_t count : kCounts) {
        INFO(to_string(op) << " of " << count << " " << to_string(type));
        const std::vector<std::byte> before = numbers(type, count + 1, 0);
        const std::vector<std::byte> mine = numbers(type, count, 1);
        std::vector<std::byte> target = before, wanted = before;
        const Source sources[] = {{before.data(), Form::kContribution},
                                  {mine.data(), Form::kContribution}};
        const Target result{wanted.data(), Form::kResult};
        reduce_reference({.type = type, .op = op}, sources, std::span(&result, 1), count);
        accumulate(type, op, mine.data(), target.data(), count);
        CHECK(target == wanted);
      }
    }
  }
}

TEST_CASE("what can't be accumulated: averages, scaled sums, bits of floats, what there is not") {
  CHECK(may_accumulate(DataType::kInt8, ReduceOp::kXor));
  CHECK(may_accumulate(DataType::kFloat8E5M2, ReduceOp::kMin));
  CHECK_FALSE(may_accumulate(DataType::kInt32, ReduceOp::kAvg));
  CHECK_FALSE(may_accumulate(DataType::kFloat32, ReduceOp::kPreMulSum));
  CHECK_FALSE(may_accumulate(DataType::kFloat64, ReduceOp::kAnd));
  CHECK_FALSE(may_accumulate(static_cast<DataType>(255), ReduceOp::kSum));
  CHECK_FALSE(may_accumulate(DataType::kInt32, static_cast<ReduceOp>(255)));
}

/// Threads add ones to the same elements, of which none may get lost.
template <class Number>
void add_at_once(DataType type) {
  constexpr int kThreads = 4, kTimes = 3000;
  constexpr std::size_t kElements = 5;
  std::vector<Number> sums(kElements, 0);
  const std::vector<Number> ones(kElements, 1);
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < kTimes; ++k)
          accumulate(type, ReduceOp::kSum, reinterpret_cast<const std::byte*>(ones.data()),
                     reinterpret_cast<std::byte*>(sums.data()), kElements);
      });
    }
  }
  INFO(to_string(type));
  for (const Number sum : sums) CHECK(sum == static_cast<Number>(kThreads * kTimes));
}

TEST_CASE("of what many threads accumulate at once, nothing is lost") {
  add_at_once<std::uint8_t>(DataType::kUint8);
  add_at_once<std::int16_t>(DataType::kInt16);
  add_at_once<std::uint16_t>(DataType::kUint16);
  add_at_once<float>(DataType::kFloat32);
  add_at_once<std::int64_t>(DataType::kInt64);
  add_at_once<double>(DataType::kFloat64);
}

}  // namespace
}  // namespace tutti::kernels
