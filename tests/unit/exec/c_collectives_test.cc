// The collectives of the C API against what they have to give, blocking and started.
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "support/c_ranks.h"

using tutti::test::Ranks;

namespace {

constexpr std::size_t kCount = 1000;
constexpr int kBlock = 1000;
constexpr int kRanks = 3;
using Ints = std::vector<std::int32_t>;

/// Every rank gets as many elements.
std::function<std::size_t(int)> all_get(std::size_t count) {
  return [count](int) { return count; };
}

/// Runs a collective on three ranks, blocking or started, and compares all of the output: rank r's
/// input[i] is i + 7 r, and its output[i] has to be wanted(r, i), i < count(r).
template <class Blocking, class Start>
void check_collective(const std::function<std::size_t(int)>& count,
                      const std::function<int(int, int)>& wanted, Blocking blocking, Start start) {
  Ranks ranks(kRanks);
  for (const bool started : {false, true}) {
    CAPTURE(started);
    std::array<std::size_t, kRanks> wrong{};
    CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
      Ints in(kRanks * kCount), out(kRanks * kCount, -1);
      for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<int>(i) + 7 * rank;
      tutti_result_t result = TUTTI_OK;
      if (started) {
        tutti_work_t work = nullptr;
        result = start(comm, rank, in.data(), out.data(), &work);
        if (result == TUTTI_OK) result = tutti_work_wait(work, -1);
        tutti_work_free(work);
      } else {
        result = blocking(comm, rank, in.data(), out.data());
      }
      for (std::size_t i = 0; i < out.size(); ++i) {
        const int value = i < count(rank) ? wanted(rank, static_cast<int>(i)) : -1;
        if (out[i] != value) ++wrong[static_cast<std::size_t>(rank)];
      }
      return result;
    }));
    CHECK(wrong == std::array<std::size_t, kRanks>{});
  }
}

}  // namespace

TEST_CASE("all-reduce, blocking and started") {
  check_collective(
      all_get(kCount), [](int, int i) { return 3 * i + 21; },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_all_reduce(comm, in, out, kCount, TUTTI_INT32, TUTTI_SUM);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_all_reduce(comm, in, out, kCount, TUTTI_INT32, TUTTI_SUM, work);
      });
}

TEST_CASE("all-reduce with a scale of each rank, blocking and started") {
  check_collective(
      all_get(kCount), [](int, int i) { return 6 * i + 2 * 7 + 3 * 14; },
      [](tutti_comm_t comm, int rank, const void* in, void* out) {
        return tutti_all_reduce_pre_mul_sum(comm, in, out, kCount, TUTTI_INT32, rank + 1);
      },
      [](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_all_reduce_pre_mul_sum(comm, in, out, kCount, TUTTI_INT32, rank + 1,
                                                  work);
      });
}

TEST_CASE("scan, blocking and started") {
  check_collective(
      all_get(kCount), [](int rank, int i) { return (rank + 1) * i + 7 * (rank * (rank + 1) / 2); },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_scan(comm, in, out, kCount, TUTTI_INT32, TUTTI_SUM);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_scan(comm, in, out, kCount, TUTTI_INT32, TUTTI_SUM, work);
      });
}

TEST_CASE("exclusive scan, blocking and started; rank 0 needs no output") {
  check_collective([](int rank) { return rank == 0 ? 0 : kCount; },
                   [](int rank, int i) { return rank * i + 7 * (rank * (rank - 1) / 2); },
                   [](tutti_comm_t comm, int rank, const void* in, void* out) {
                     return tutti_exclusive_scan(comm, in, rank == 0 ? nullptr : out, kCount,
                                                 TUTTI_INT32, TUTTI_SUM);
                   },
                   [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
                     return tutti_start_exclusive_scan(comm, in, out, kCount, TUTTI_INT32,
                                                       TUTTI_SUM, work);
                   });
}

TEST_CASE("reduce to the last rank, blocking and started") {
  check_collective(
      [](int rank) { return rank == 2 ? kCount : 0; }, [](int, int i) { return 3 * i + 21; },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_reduce(comm, in, out, kCount, TUTTI_INT32, TUTTI_SUM, 2);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_reduce(comm, in, out, kCount, TUTTI_INT32, TUTTI_SUM, 2, work);
      });
}

TEST_CASE("reduce with a scale of each rank, blocking and started") {
  check_collective([](int rank) { return rank == 1 ? kCount : 0; },
                   [](int, int i) { return 6 * i + 2 * 7 + 3 * 14; },
                   [](tutti_comm_t comm, int rank, const void* in, void* out) {
                     return tutti_reduce_pre_mul_sum(comm, in, out, kCount, TUTTI_INT32, rank + 1,
                                                     1);
                   },
                   [](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
                     return tutti_start_reduce_pre_mul_sum(comm, in, out, kCount, TUTTI_INT32,
                                                           rank + 1, 1, work);
                   });
}

TEST_CASE("gather at the last rank, blocking and started") {
  check_collective([](int rank) { return rank == 2 ? kRanks * kCount : 0; },
                   [](int, int i) { return i % kBlock + 7 * (i / kBlock); },
                   [](tutti_comm_t comm, int, const void* in, void* out) {
                     return tutti_gather(comm, in, out, kCount, TUTTI_INT32, 2);
                   },
                   [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
                     return tutti_start_gather(comm, in, out, kCount, TUTTI_INT32, 2, work);
                   });
}

TEST_CASE("scatter from the last rank, blocking and started") {
  check_collective(
      all_get(kCount), [](int rank, int i) { return rank * kBlock + i + 14; },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_scatter(comm, in, out, kCount, TUTTI_INT32, 2);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_scatter(comm, in, out, kCount, TUTTI_INT32, 2, work);
      });
}

TEST_CASE("all-to-all, blocking and started") {
  check_collective(
      all_get(kRanks * kCount),
      [](int rank, int i) { return rank * kBlock + i % kBlock + 7 * (i / kBlock); },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_all_to_all(comm, in, out, kCount, TUTTI_INT32);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_all_to_all(comm, in, out, kCount, TUTTI_INT32, work);
      });
}

TEST_CASE("reduce-scatter, blocking and started") {
  check_collective(
      all_get(kCount), [](int rank, int i) { return rank * kBlock + i + 14; },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_reduce_scatter(comm, in, out, kCount, TUTTI_INT32, TUTTI_MAX);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_reduce_scatter(comm, in, out, kCount, TUTTI_INT32, TUTTI_MAX, work);
      });
}

TEST_CASE("reduce-scatter with a scale of each rank, blocking and started") {
  check_collective(
      all_get(kCount), [](int rank, int i) { return 6 * (rank * kBlock + i) + 2 * 7 + 3 * 14; },
      [](tutti_comm_t comm, int rank, const void* in, void* out) {
        return tutti_reduce_scatter_pre_mul_sum(comm, in, out, kCount, TUTTI_INT32, rank + 1);
      },
      [](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_reduce_scatter_pre_mul_sum(comm, in, out, kCount, TUTTI_INT32, rank + 1,
                                                      work);
      });
}

TEST_CASE("all-gather, blocking and started") {
  check_collective(
      all_get(kRanks * kCount), [](int, int i) { return i % kBlock + 7 * (i / kBlock); },
      [](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_all_gather(comm, in, out, kCount, TUTTI_INT32);
      },
      [](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_all_gather(comm, in, out, kCount, TUTTI_INT32, work);
      });
}

TEST_CASE("broadcast, blocking and started; only the root has an input") {
  check_collective(
      all_get(kCount), [](int, int i) { return i + 7; },
      [](tutti_comm_t comm, int rank, const void* in, void* out) {
        return tutti_broadcast(comm, rank == 1 ? in : nullptr, out, kCount, TUTTI_INT32, 1);
      },
      [](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_broadcast(comm, rank == 1 ? in : nullptr, out, kCount, TUTTI_INT32, 1,
                                     work);
      });
}

TEST_CASE("a barrier holds until the last rank has come") {
  Ranks ranks(kRanks);
  std::atomic<int> come{0};
  std::array<int, kRanks> seen{};
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
    ++come;
    const tutti_result_t result = tutti_barrier(comm);
    seen[static_cast<std::size_t>(rank)] = come;
    return result;
  }));
  CHECK(seen == std::array{kRanks, kRanks, kRanks});
}

TEST_CASE("all-gather and reduce-scatter with blocks of different sizes, blocking and started") {
  // Rank r gives r + 1 elements to each; offsets leave a gap before each block.
  const std::array<std::size_t, kRanks> counts{1, 2, 3}, offsets{1, 3, 6};
  constexpr int kGap = -1;
  const auto at = [](std::initializer_list<int> values) {
    return [all = Ints(values)](int, int i) {
      return static_cast<std::size_t>(i) < all.size() ? all[static_cast<std::size_t>(i)] : kGap;
    };
  };
  check_collective(
      all_get(9), at({kGap, 0, kGap, 7, 8, kGap, 14, 15, 16}),
      [&](tutti_comm_t comm, int, const void* in, void* out) {
        return tutti_all_gather_v(comm, in, out, counts.data(), offsets.data(), TUTTI_INT32);
      },
      [&](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_all_gather_v(comm, in, out, counts.data(), offsets.data(), TUTTI_INT32,
                                        work);
      });
  check_collective([](int rank) { return static_cast<std::size_t>(rank) + 1; },
                   [&](int rank, int i) {
                     return static_cast<int>(offsets[static_cast<std::size_t>(rank)]) + i + 14;
                   },
                   [&](tutti_comm_t comm, int, const void* in, void* out) {
                     return tutti_reduce_scatter_v(comm, in, out, counts.data(), offsets.data(),
                                                   TUTTI_INT32, TUTTI_MAX);
                   },
                   [&](tutti_comm_t comm, int, const void* in, void* out, tutti_work_t* work) {
                     return tutti_start_reduce_scatter_v(comm, in, out, counts.data(),
                                                         offsets.data(), TUTTI_INT32, TUTTI_MAX,
                                                         work);
                   });
}

TEST_CASE("all-to-all with blocks of different sizes, blocking and started") {
  const std::array<std::size_t, kRanks> counts{1, 2, 3};
  // Rank r gives s + 1 elements to rank s, and so gets r + 1 from each.
  const auto own = [](int rank) {
    const auto count = static_cast<std::size_t>(rank) + 1;
    return std::array<std::size_t, kRanks>{count, count, count};
  };
  const auto exchanged = [](int rank, int i) {
    const int first[] = {0, 1, 3};
    return first[rank] + i % (rank + 1) + 7 * (i / (rank + 1));
  };
  const auto got = [](int rank) { return static_cast<std::size_t>(kRanks * (rank + 1)); };
  check_collective(
      got, exchanged,
      [&](tutti_comm_t comm, int rank, const void* in, void* out) {
        return tutti_all_to_all_v(comm, in, counts.data(), nullptr, out, own(rank).data(), nullptr,
                                  TUTTI_INT32);
      },
      [&](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_all_to_all_v(comm, in, counts.data(), nullptr, out, own(rank).data(),
                                        nullptr, TUTTI_INT32, work);
      });
}

TEST_CASE("gather and scatter with blocks of different sizes, blocking and started") {
  const std::array<std::size_t, kRanks> counts{1, 2, 3};
  const Ints gathered{0, 7, 8, 14, 15, 16};
  const auto mine = [&](int rank) { return counts[static_cast<std::size_t>(rank)]; };
  check_collective([](int rank) { return rank == 1 ? 6 : 0; },
                   [&](int, int i) { return gathered[static_cast<std::size_t>(i)]; },
                   [&](tutti_comm_t comm, int rank, const void* in, void* out) {
                     return tutti_gather_v(comm, in, mine(rank), rank == 1 ? out : nullptr,
                                           rank == 1 ? counts.data() : nullptr, nullptr,
                                           TUTTI_INT32, 1);
                   },
                   [&](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
                     return tutti_start_gather_v(comm, in, mine(rank), rank == 1 ? out : nullptr,
                                                 rank == 1 ? counts.data() : nullptr, nullptr,
                                                 TUTTI_INT32, 1, work);
                   });
  check_collective(
      mine,
      [](int rank, int i) {
        return 7 + (rank == 0 ? 0 : rank == 1 ? 1 : 3) + i;
      },
      [&](tutti_comm_t comm, int rank, const void* in, void* out) {
        return tutti_scatter_v(comm, rank == 1 ? in : nullptr, rank == 1 ? counts.data() : nullptr,
                               nullptr, out, mine(rank), TUTTI_INT32, 1);
      },
      [&](tutti_comm_t comm, int rank, const void* in, void* out, tutti_work_t* work) {
        return tutti_start_scatter_v(comm, rank == 1 ? in : nullptr,
                                     rank == 1 ? counts.data() : nullptr, nullptr, out, mine(rank),
                                     TUTTI_INT32, 1, work);
      });
}
