// File: support/net/verbs_renewal_cases.h: the duties of rails between RDMA devices, real ones or
// not, that were lost and come back. The file that includes it says which devices: fabric().
#pragma once
#include "support/net/verbs_cases.h"
#include "transport/net/rails.h"

namespace tutti::test {
namespace {

/// How many rails a rank has to another one that have not failed.
std::size_t alive(const VerbsRank& rank, int peer) {
  return dynamic_cast<net::Rails&>(*rank.network->carrier(peer)).alive();
}

/// Drives two ranks until both have so many rails again, or not any more; or for that long.
bool drive_until(const std::vector<std::unique_ptr<VerbsRank>>& ranks, std::size_t rails,
                 Clock::duration longest = kLongest) {
  auto mine = sinks_of(*ranks[0], 2), theirs = sinks_of(*ranks[1], 2);
  const auto end = Clock::now() + longest;
  while (alive(*ranks[0], 1) != rails || alive(*ranks[1], 0) != rails) {
    if (Clock::now() > end) return false;
    REQUIRE(progress(*ranks[0], mine));
    REQUIRE(progress(*ranks[1], theirs));
    ranks[0]->network->sleep(1ms);
  }
  return true;
}

/// Both send each other frames. Empty: all is well.
std::string exchange_both(const std::vector<std::unique_ptr<VerbsRank>>& ranks, std::uint32_t count,
                          std::uint64_t seed,
                          const std::array<std::function<void()>, 2>& meanwhile = {}) {
  Traffic traffic;
  std::array<std::string, 2> wrong;
  {
    std::jthread other(
        [&] { wrong[1] = exchange_frames(*ranks[1], 1, 2, count, seed, traffic, meanwhile[1]); });
    wrong[0] = exchange_frames(*ranks[0], 0, 2, count, seed, traffic, meanwhile[0]);
  }
  return wrong[0] + wrong[1];
}

}  // namespace

TEST_CASE("rails that broke are taken again, at any moment, and nothing is lost or comes twice") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  auto options = with_rails(2);
  options.options.renewal = {.first_pause = 50ms, .longest_pause = 50ms};
  const auto ranks = join_verbs(fabric(), options);
  require_joined(ranks);
  // Rank 0 says what breaks next, once both have all rails: the others have to be there.
  struct Break {
    std::size_t by, rail, pair;
  };
  std::mt19937_64 random(seed);
  std::atomic<std::size_t> alive_at_1{3};
  std::atomic<int> asked{-1};  // What rank 1 is to break: rail * 2 + pair.
  bool awaited = false;
  unsigned broken = 0;
  const auto at_0 = [&] {
    const std::size_t here = alive(*ranks[0], 1);
    if (awaited) awaited = here == 3;
    if (awaited || here != 3 || alive_at_1 != 3 || random() % 50 != 0) return;
    const Break next{random() % 2, random() % 3, random() % verbs::kPairs};
    if (next.by == 0)
      break_link(*ranks[0], 1, next.rail, next.pair);
    else
      asked = static_cast<int>(next.rail * 2 + next.pair);
    awaited = true;
    ++broken;
  };
  const auto at_1 = [&] {
    if (const int what = asked.exchange(-1); what >= 0)
      break_link(*ranks[1], 0, static_cast<std::size_t>(what / 2),
                 static_cast<std::size_t>(what % 2));
    alive_at_1 = alive(*ranks[1], 0);
  };
  while (broken <= kBreakingRounds) {
    const std::string wrong = exchange_both(ranks, 400, seed + broken, {at_0, at_1});
    REQUIRE(wrong == "");
  }
}

TEST_CASE("a rail comes back though others are lost that carry what is said about it") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  auto options = with_rails(2);
  options.options.renewal = {.first_pause = 50ms, .longest_pause = 50ms};
  const auto ranks = join_verbs(fabric(), options);
  require_joined(ranks);
  std::mt19937_64 random(seed);
  for (unsigned round = 0; round < kBreakingRounds; ++round) {
    INFO("round " << round);
    const std::size_t first = random() % 3;
    break_link(*ranks[0], 1, first, 0);
    // Somewhere between the loss and its end.
    (void)drive_until(ranks, 0, std::chrono::milliseconds(random() % 400));
    // The rail that short frames go by, of either rank, unless it is the one that came back.
    for (const std::size_t rank : {0U, 1U}) {
      const auto* const link = ranks[rank]->network->link(static_cast<int>(1 - rank), first);
      if (!link->abandoned()) continue;
      break_link(*ranks[rank], static_cast<int>(1 - rank), (first + 1) % 3, 1);
    }
    REQUIRE(drive_until(ranks, 3));
  }
  CHECK(exchange_both(ranks, 400, seed) == "");
}

}  // namespace tutti::test
