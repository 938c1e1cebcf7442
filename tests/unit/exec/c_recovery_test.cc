// Going on after a failure, by the C API: what the C++ API does is in conformance/recovery_test.
#include <array>
#include <atomic>
#include <thread>

#include "support/c_ranks.h"

namespace tutti::test {
namespace {

TEST_CASE("C: after a revoke ranks agree, and shrink to all of them") {
  Ranks ranks(3);
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) -> tutti_result_t {
    if (rank == 1) tutti_comm_revoke(comm, "new ranks");
    tutti_result_t result = TUTTI_OK;
    int one = 1, sum = 0;
    while (result == TUTTI_OK)
      result = tutti_all_reduce(comm, &one, &sum, 1, TUTTI_INT32, TUTTI_SUM);
    if (result != TUTTI_REVOKED || tutti_comm_health(comm) != TUTTI_REVOKED) return TUTTI_INTERNAL;
    if (std::string(tutti_last_error()).find("new ranks") == std::string::npos)
      return TUTTI_INTERNAL;
    std::uint64_t flags = 8U | 1U << rank, completed = ~0ULL;
    if ((result = tutti_comm_agree(comm, &flags)) != TUTTI_OK) return result;
    tutti_comm_t shrunk = nullptr;
    std::array<int, 3> members{};
    result = tutti_comm_shrink(comm, nullptr, 0, &shrunk, members.data(), &completed);
    if (result != TUTTI_OK) return result;
    result = tutti_comm_health(shrunk);
    if (result == TUTTI_OK)
      result = tutti_all_reduce(shrunk, &one, &sum, 1, TUTTI_INT32, TUTTI_SUM);
    tutti_comm_destroy(shrunk);
    const bool right =
        flags == 8 && members == std::array{0, 1, 2} && sum == 3 && completed < 1'000'000;
    return result == TUTTI_OK && !right ? tutti_result_t{TUTTI_INTERNAL} : result;
  }));
}

TEST_CASE("C: an exclusion, and a rank that comes anew") {
  Ranks ranks(3);
  tutti_unique_id_t id;
  REQUIRE(tutti_get_unique_id(&id) == TUTTI_OK);
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) -> tutti_result_t {
    const int excluded = 0;
    tutti_comm_t shrunk = nullptr, grown = nullptr;
    std::array<int, 3> members{-1, -1, -1};
    tutti_result_t result = TUTTI_OK;
    if (rank != 0) {
      result = tutti_comm_shrink(comm, &excluded, 1, &shrunk, members.data(), nullptr);
      if (result != TUTTI_OK) return result;
      if (members != std::array{1, 2, -1}) return TUTTI_INTERNAL;
      result = tutti_comm_grow(shrunk, &id, 3, &grown);
    } else {
      result = tutti_comm_init_rank(&grown, &id, 2, 3);
    }
    int now = -1, sum = 0;
    if (result == TUTTI_OK) result = tutti_comm_rank(grown, &now);
    if (result == TUTTI_OK) result = tutti_all_reduce(grown, &now, &sum, 1, TUTTI_INT32, TUTTI_SUM);
    tutti_comm_destroy(grown);
    tutti_comm_destroy(shrunk);
    const bool right = sum == 3 && now == (rank + 2) % 3;
    return result == TUTTI_OK && !right ? tutti_result_t{TUTTI_INTERNAL} : result;
  }));
}

TEST_CASE("C: bad arguments of recovery are named") {
  Ranks ranks(2);
  const tutti_comm_t comm = ranks[0];
  const int self = 0;
  tutti_comm_t made = comm;
  tutti_unique_id_t id{};
  std::uint64_t flags = 0;
  const auto shrink = [&](tutti_comm_t whole, const int* excluded, int count, tutti_comm_t* into) {
    return [=] { return tutti_comm_shrink(whole, excluded, count, into, nullptr, nullptr); };
  };
  check_invalid("tutti_comm_shrink", shrink(nullptr, nullptr, 0, &made));
  CHECK(made == nullptr);
  check_invalid("tutti_comm_shrink", shrink(comm, nullptr, 0, nullptr));
  check_invalid("tutti_comm_shrink", shrink(comm, nullptr, 1, &made));
  check_invalid("tutti_comm_shrink", shrink(comm, &self, 1, &made));
  check_invalid("tutti_comm_shrink", shrink(comm, &self, 2, &made));
  check_invalid("tutti_comm_shrink", shrink(comm, &self, -1, &made));
  check_invalid("tutti_comm_agree", [&] { return tutti_comm_agree(comm, nullptr); });
  check_invalid("tutti_comm_agree", [&] { return tutti_comm_agree(nullptr, &flags); });
  check_invalid("tutti_comm_health", [&] { return tutti_comm_health(nullptr); });
  check_invalid("tutti_comm_revoke", [&] { return tutti_comm_revoke(nullptr, "why"); });
  check_invalid("tutti_comm_grow", [&] { return tutti_comm_grow(comm, &id, 3, nullptr); });
  check_invalid("tutti_comm_grow", [&] { return tutti_comm_grow(comm, nullptr, 3, &made); });
}

}  // namespace
}  // namespace tutti::test
