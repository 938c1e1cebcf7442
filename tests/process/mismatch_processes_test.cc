// Ranks as processes that make different calls: some pairs of all, on what joins processes.
#include <algorithm>
#include <filesystem>

#include "support/catch.h"
#include "support/mismatches.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// Empty, or what is wrong with what this rank got.
std::string check_rank(const ScratchDirectory& meeting, int rank, int ranks, int odd,
                       const Kind& most, const Kind& other, std::size_t count,
                       const std::string& transport) {
  Settings settings;
  settings.transport = transport;
  settings.timeout = 60s;
  auto comm = join(meeting, rank, ranks, settings);
  if (!comm) return comm.error().to_string();
  const Outcome got = call_and_barrier(*comm, rank == odd ? other : most, count);
  // No rank leaves before all know what they got.
  say_ready(meeting, rank);
  if (!all_ready(meeting, ranks)) return "the others do not come";
  return complaint(got, rank, odd, most, other, count);
}

TEST_CASE("processes that make different calls are told so at once") {
  const std::string transport = GENERATE("shared_memory", "tcp");
  constexpr int kPairs = 24;
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  for (int i = 0; i < kPairs; ++i) {
    const int ranks = 2 + static_cast<int>(random() % 3);
    const auto kinds = all_kinds(ranks);
    const Kind& most = kinds[random() % kinds.size()];
    const Kind& other = kinds[random() % kinds.size()];
    const std::size_t count = kMismatchCounts[random() % std::size(kMismatchCounts)];
    const int odd = static_cast<int>(random() % static_cast<unsigned>(ranks));
    if (most == other) continue;
    INFO(transport << ", --rng-seed " << seed << ", pair " << i << ": " << ranks << " ranks, "
                   << most.name(count) << " (root " << most.root << "), rank " << odd << " "
                   << other.name(count) << " (root " << other.root << ")");
    const ScratchDirectory meeting;
    Processes processes(ranks, [&](int rank) {
      return check_rank(meeting, rank, ranks, odd, most, other, count, transport);
    });
    for (int rank = 0; rank < ranks; ++rank) CHECK(processes.wait(rank, 60s) == 0);
  }
}

}  // namespace
}  // namespace tutti::test
