// The C API's collectives by a program's own operation: results, context, and bad arguments.
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "support/c_ranks.h"

using tutti::test::check_invalid;
using tutti::test::Ranks;

namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 5000;

/// x -> 10 x + digit, as the digits and how many they are; numbers wrap. Counts its calls.
struct Digits {
  unsigned value, scale;
};
void join(const void* lower, void* higher, std::size_t count, void* context) {
  const auto* low = static_cast<const Digits*>(lower);
  auto* high = static_cast<Digits*>(higher);
  for (std::size_t i = 0; i < count; ++i)
    high[i] = {low[i].value * high[i].scale + high[i].value, low[i].scale * high[i].scale};
  ++*static_cast<int*>(context);
}

using Blocks = std::vector<Digits>;
/// The digits that rank r gives: r + 1, everywhere.
Blocks given(int rank, std::size_t blocks) {
  return Blocks(blocks * kCount, {static_cast<unsigned>(rank) + 1, 10});
}

using Call =
    std::function<tutti_result_t(tutti_comm_t, const Digits*, Digits*, const tutti_user_op_t*)>;
/// Output by rank: wanted[rank] everywhere; 0: none.
void check_call(std::size_t input_blocks, const std::array<unsigned, kRanks>& wanted,
                const Call& call) {
  Ranks ranks(kRanks);
  std::array<std::size_t, kRanks> wrong{};
  std::array<int, kRanks> calls{};
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
    const auto at = static_cast<std::size_t>(rank);
    const tutti_user_op_t op{sizeof(Digits), join, &calls[at]};
    const Blocks in = given(rank, input_blocks);
    Blocks out(wanted[at] == 0 ? 0 : kCount);
    const tutti_result_t result = call(comm, in.data(), out.empty() ? nullptr : out.data(), &op);
    for (const Digits& one : out) wrong[at] += one.value == wanted[at] ? 0U : 1U;
    return result;
  }));
  CHECK(wrong == std::array<std::size_t, kRanks>{});
  for (const int made : calls) CHECK(made > 0);
}

}  // namespace

TEST_CASE("a user's operation in C joins the ranks' elements in their order") {
  check_call(1, {123, 123, 123}, [](auto comm, auto* in, auto* out, auto* op) {
    return tutti_all_reduce_by(comm, in, out, kCount, op);
  });
  check_call(1, {0, 123, 0}, [](auto comm, auto* in, auto* out, auto* op) {
    return tutti_reduce_by(comm, in, out, kCount, op, 1);
  });
  check_call(kRanks, {123, 123, 123}, [](auto comm, auto* in, auto* out, auto* op) {
    return tutti_reduce_scatter_by(comm, in, out, kCount, op);
  });
  check_call(1, {1, 12, 123}, [](auto comm, auto* in, auto* out, auto* op) {
    return tutti_scan_by(comm, in, out, kCount, op);
  });
  check_call(1, {0, 1, 12}, [](auto comm, auto* in, auto* out, auto* op) {
    return tutti_exclusive_scan_by(comm, in, out, kCount, op);
  });
}

TEST_CASE("a user's operation in C that says nothing is an error of every function") {
  Ranks ranks(1);
  Digits in[2] = {}, out[2] = {};
  int calls = 0;
  const tutti_user_op_t good{sizeof(Digits), join, &calls};
  const tutti_user_op_t no_function{sizeof(Digits), nullptr, nullptr}, no_size{0, join, &calls};
  using Function =
      tutti_result_t (*)(tutti_comm_t, const void*, void*, std::size_t, const tutti_user_op_t*);
  const std::pair<const char*, Function> functions[] = {
      {"tutti_all_reduce_by", tutti_all_reduce_by},
      {"tutti_reduce_by", [](auto comm, auto* from, auto* to, auto count,
                             auto* op) { return tutti_reduce_by(comm, from, to, count, op, 0); }},
      {"tutti_reduce_scatter_by", tutti_reduce_scatter_by},
      {"tutti_scan_by", tutti_scan_by},
      {"tutti_exclusive_scan_by", tutti_exclusive_scan_by}};
  for (const auto& one : functions) {
    const auto* const name = one.first;
    const Function function = one.second;
    INFO(name);
    check_invalid(name, [&] { return function(nullptr, in, out, 2, &good); });
    check_invalid(name, [&] { return function(ranks[0], in, out, 2, nullptr); });
    CHECK(function(ranks[0], in, out, 2, &no_function) == TUTTI_INVALID_ARGUMENT);
    CHECK(function(ranks[0], in, out, 2, &no_size) == TUTTI_INVALID_ARGUMENT);
    CHECK(function(ranks[0], nullptr, out, 2, &good) == TUTTI_INVALID_ARGUMENT);
  }
  CHECK(calls == 0);
}
