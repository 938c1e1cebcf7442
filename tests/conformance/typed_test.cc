// tutti/typed.h: every function over ranges does what the one over pointers does, and refuses sizes
// that don't fit.
#include "tutti/typed.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <numeric>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/kinds.h"

namespace tutti::test {
namespace {

constexpr int kRanks = 3;
using Floats = std::vector<float>;

/// Runs on all ranks; each gets its number as an index.
template <class Body>
void on_ranks(Body body) {
  auto comms = Communicator::in_process(kRanks);
  if (!comms) FAIL(comms.error().to_string());
  const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
    return body(comm, static_cast<std::size_t>(comm.rank().value));
  });
  CHECK(wrong == "");
}

std::string same(const Status& status, const Floats& got, const Floats& expected) {
  if (!status) return status.error().to_string();
  return got == expected ? "" : "the result is wrong";
}

TEST_CASE("typed collectives give the results of those over pointers") {
  on_ranks([](Communicator& comm, std::size_t me) -> std::string {
    const auto x = static_cast<float>(me);
    const bool root = me == 1;
    std::string wrong;
    const auto expect = [&](const Status& status, const Floats& got, const Floats& expected) {
      if (wrong.empty()) wrong = same(status, got, expected);
    };
    const Floats two = {x, 10 + x}, six = {x, x, 10 + x, 10 + x, 20 + x, 20 + x};
    Floats a(2), b(6), in_place = two;
    expect(all_reduce(comm, two, a, ReduceOp::kSum), a, {3, 33});
    expect(all_reduce(comm, in_place, ReduceOp::kMax), in_place, {2, 12});
    expect(reduce_scatter(comm, six, a, ReduceOp::kSum), a, {30 * x + 3, 30 * x + 3});
    expect(all_gather(comm, two, b), b, {0, 10, 1, 11, 2, 12});
    expect(all_to_all(comm, six, b), b,
           {10 * x, 10 * x, 10 * x + 1, 10 * x + 1, 10 * x + 2, 10 * x + 2});
    const Floats scans[] = {{0, 10}, {1, 21}, {3, 33}};
    expect(scan(comm, two, a, ReduceOp::kSum), a, scans[me]);
    expect(exclusive_scan(comm, two, a, ReduceOp::kSum), a, scans[me == 0 ? 0 : me - 1]);
    expect(broadcast(comm, two, a, Rank{1}), a, {1, 11});
    in_place = two;
    expect(broadcast(comm, in_place, Rank{2}), in_place, {2, 12});
    Floats none, at_root(root ? 2 : 0), all(root ? 6 : 0);
    expect(reduce(comm, two, at_root, ReduceOp::kSum, Rank{1}), at_root,
           root ? Floats{3, 33} : none);
    expect(gather(comm, two, all, Rank{1}), all, root ? Floats{0, 10, 1, 11, 2, 12} : none);
    expect(scatter(comm, root ? six : none, a, Rank{1}), a, {10 * x + 1, 10 * x + 1});
    return wrong;
  });
}

TEST_CASE("typed calls that are started, and messages") {
  on_ranks([](Communicator& comm, std::size_t me) -> std::string {
    std::array<std::int32_t, 2> data = {1, static_cast<std::int32_t>(me)};
    auto work = start_all_reduce(comm, data, ReduceOp::kSum);
    if (!work) return work.error().to_string();
    if (auto done = work->wait(); !done) return done.error().to_string();
    if (data != std::array<std::int32_t, 2>{3, 3}) return "the sum is wrong";
    const auto next = static_cast<int>((me + 1) % kRanks),
               before = static_cast<int>((me + 2) % kRanks);
    const std::array<double, 1> out = {static_cast<double>(me)};
    std::array<double, 1> in = {};
    auto sent = start_send(comm, out, Rank{next});
    if (!sent) return sent.error().to_string();
    if (auto got = recv(comm, std::span(in), Rank{before}); !got) return got.error().to_string();
    if (auto done = sent->wait(); !done) return done.error().to_string();
    return in[0] == before ? "" : "the message is wrong";
  });
}

TEST_CASE("sizes that don't fit are named, and nothing is called") {
  on_ranks([](Communicator& comm, std::size_t) -> std::string {
    const Floats two(2);
    Floats three(3), five(5);
    const auto refused = [](const Status& status, std::string_view says) {
      return !status && status.error().code == Code::kInvalidArgument &&
             status.error().what.find(says) != std::string::npos;
    };
    if (!refused(all_reduce(comm, two, three, ReduceOp::kSum), "output has 3 elements; it needs 2"))
      return "all_reduce";
    if (!refused(all_gather(comm, two, five), "output has 5 elements; it needs 6"))
      return "all_gather";
    if (!refused(reduce_scatter(comm, five, three, ReduceOp::kSum),
                 "input has 5 elements; it needs 9"))
      return "reduce_scatter";
    if (!refused(all_to_all(comm, five, five), "input has 5 elements; it needs 3"))
      return "all_to_all";
    const Status met = comm.barrier();
    return met ? "" : met.error().to_string();
  });
}

/// "" if it is the caller's error and says so.
std::string refused(const Status& status, std::string_view part) {
  if (status) return std::string(part) + ": it went well";
  const bool fits = status.error().code == Code::kInvalidArgument &&
                    status.error().what.find(part) != std::string::npos;
  return fits ? "" : status.error().to_string();
}

TEST_CASE("bools take logical operations, and stay 0 or 1") {
  on_ranks([](Communicator& comm, std::size_t me) -> std::string {
    const std::array<bool, 3> mine{true, me == 1, false};
    std::array<bool, 3> got{};
    const std::pair<ReduceOp, std::array<bool, 3>> cases[] = {
        {ReduceOp::kAnd, {true, false, false}}, {ReduceOp::kOr, {true, true, false}},
        {ReduceOp::kXor, {true, true, false}},  {ReduceOp::kMin, {true, false, false}},
        {ReduceOp::kMax, {true, true, false}},  {ReduceOp::kProd, {true, false, false}}};
    for (const auto& [op, expected] : cases) {
      const Status status = all_reduce(comm, mine, got, op);
      if (!status) return status.error().to_string();
      if (got != expected) return std::string(to_string(op)) + " is wrong";
    }
    for (const Reduction& op :
         {Reduction(ReduceOp::kSum), Reduction(ReduceOp::kAvg), Reduction::pre_mul_sum(2)}) {
      const std::string wrong = refused(scan(comm, mine, got, op), "bool can't be reduced by");
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
}

TEST_CASE("complex numbers are summed and moved, as pairs of numbers") {
  using Complex = std::complex<double>;
  on_ranks([](Communicator& comm, std::size_t me) -> std::string {
    const auto x = static_cast<double>(me);
    const std::array<Complex, 2> mine{Complex(x, 1), Complex(0, -x)};
    std::array<Complex, 2> sum{};
    Status status = all_reduce(comm, mine, sum, ReduceOp::kSum);
    if (!status || sum != std::array<Complex, 2>{Complex(3, 3), Complex(0, -3)}) return "the sum";
    status = all_reduce(comm, mine, sum, ReduceOp::kAvg);
    if (!status || sum != std::array<Complex, 2>{Complex(1, 1), Complex(0, -1)}) return "the mean";
    std::array<Complex, 6> all{};
    status = all_gather(comm, mine, all);
    if (!status || all[2] != Complex(1, 1) || all[5] != Complex(0, -2)) return "all_gather";
    if (me == 0) status = send(comm, mine, Rank{1});
    if (me == 1) status = recv(comm, sum, Rank{0});
    if (!status || (me == 1 && sum != std::array<Complex, 2>{Complex(0, 1), Complex(0, 0)}))
      return "a message";
    for (const ReduceOp op : {ReduceOp::kProd, ReduceOp::kMin, ReduceOp::kMax}) {
      const std::string wrong =
          refused(all_reduce(comm, mine, sum, op), "complex numbers can't be reduced by");
      if (!wrong.empty()) return wrong;
    }
    return refused(all_reduce(comm, mine, all, ReduceOp::kSum),
                   "output has 6 elements; it needs 2");
  });
}

TEST_CASE("every integer of the library has its type of C++") {
  constexpr DataType kIntegers[] = {kDataTypeOf<std::int8_t>,  kDataTypeOf<std::uint8_t>,
                                    kDataTypeOf<std::int16_t>, kDataTypeOf<std::uint16_t>,
                                    kDataTypeOf<std::int32_t>, kDataTypeOf<std::uint32_t>,
                                    kDataTypeOf<std::int64_t>, kDataTypeOf<std::uint64_t>};
  for (const DataType type : all_types()) {
    INFO(to_string(type));
    CHECK(std::ranges::count(kIntegers, type) == (is_integer(type) ? 1 : 0));
  }
}

TEST_CASE("types of C++ are those of the library") {
  STATIC_REQUIRE(kDataTypeOf<float> == DataType::kFloat32);
  STATIC_REQUIRE(kDataTypeOf<std::byte> == DataType::kUint8);
  STATIC_REQUIRE(kDataTypeOf<long> == DataType::kInt64);
  STATIC_REQUIRE(kDataTypeOf<unsigned long long> == DataType::kUint64);
  STATIC_REQUIRE(kDataTypeOf<short> == DataType::kInt16);
  STATIC_REQUIRE(kDataTypeOf<unsigned short> == DataType::kUint16);
  STATIC_REQUIRE(kDataTypeOf<bool> == DataType::kUint8);
  STATIC_REQUIRE(kDataTypeOf<std::complex<float>> == DataType::kFloat32);
  STATIC_REQUIRE(kNumbersOf<std::complex<float>> == 2);
  STATIC_REQUIRE_FALSE(tutti::Buffer<std::vector<std::complex<long double>>>);
  STATIC_REQUIRE_FALSE(tutti::Buffer<std::vector<bool>>);
  STATIC_REQUIRE_FALSE(tutti::Buffer<std::vector<std::string>>);
  STATIC_REQUIRE_FALSE(OutputBuffer<const Floats&>);
  STATIC_REQUIRE_FALSE(Lasting<Floats>);
  STATIC_REQUIRE(Lasting<Floats&, std::span<float>>);
}

}  // namespace
}  // namespace tutti::test
