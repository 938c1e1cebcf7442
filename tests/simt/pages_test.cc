// Which steps of a lane a block may take together, and how they lie in pages.
#include "cuda/mesh/pages.h"

#include <vector>

#include "algorithms/algorithm.h"
#include "plan/passes/passes.h"
#include "support/catch.h"
#include "support/plans.h"

namespace tutti {
namespace {

using cuda::LanePage;
using plan::Location;
using plan::Place;
using plan::Step;

std::vector<LanePage> pages(const char* name, Collective collective, int ranks, std::size_t rank,
                            bool lowered = false) {
  const Algorithm* algorithm = find_algorithm(collective, name);
  REQUIRE(algorithm != nullptr);
  plan::Plan plan = build(*algorithm, {collective, ranks});
  if (lowered) plan = plan::direct(plan).value();
  return exec::pages_of(plan.ranks[rank], plan.apart);
}
std::vector<int> runs(const std::vector<LanePage>& pages) {
  std::vector<int> all;
  for (const LanePage& page : pages) all.insert(all.end(), page.runs, page.runs + page.step_count);
  return all;
}

TEST_CASE("sends to all peers are one phase, and so are the slots from all of them") {
  // To 7 peers; the sum; its result to all of them, and from 7 peers.
  CHECK(runs(pages("two_shot", Collective::kAllReduce, 8, 3)) ==
        std::vector{7, 6, 5, 4, 3, 2, 1, 1, 8, 7, 6, 5, 4, 3, 2, 1});
  // In place its own block may be what it sends.
  CHECK(runs(pages("direct", Collective::kAllToAll, 4, 1)) == std::vector{1, 3, 2, 1, 3, 2, 1});
  // Each step of a ring needs the one before.
  for (const int run : runs(pages("ring", Collective::kReduceScatter, 4, 1))) CHECK(run == 1);
}

TEST_CASE("no phase has more moves than a block keeps, or locations than a warp has threads") {
  for (const int ranks : {12, 33}) {
    for (const LanePage& page : pages("direct", Collective::kAllToAll, ranks, 0)) {
      for (unsigned s = 0; s < page.step_count; ++s) {
        const Step& last = page.steps[s + page.runs[s] - 1];
        CHECK(s + page.runs[s] <= page.step_count);
        CHECK(page.runs[s] <= cuda::kMostMoves);
        CHECK(last.end() - page.steps[s].first <= cuda::kWarpLanes);
      }
    }
  }
  CHECK(runs(pages("direct", Collective::kAllToAll, 12, 0))[1] == cuda::kMostMoves);
}

TEST_CASE("signals are taken together, unless two are of one peer") {
  const auto to = [](plan::StepKind kind, std::uint16_t peer) {
    return Step{kind, peer, 0, 0, 0, 0};
  };
  plan::RankPlan rank{.lanes = std::vector<plan::Lane>(1)};
  using enum plan::StepKind;
  rank.lanes[0].steps = {to(kSignal, 1), to(kSignal, 2), to(kWait, 1),
                         to(kWait, 2),   to(kWait, 1),   to(kSignal, 1)};
  CHECK(runs(exec::pages_of(rank, false)) == std::vector{2, 1, 2, 2, 1, 1});
}

TEST_CASE("moves on the same memory or ring are no phase") {
  const auto at = [](Place place, std::uint32_t chunk, std::uint16_t peer = 0) {
    return Location{place, Form::kResult, peer, chunk};
  };
  const auto together = [](const std::vector<Location>& locations, bool apart = false) {
    plan::RankPlan rank{.lanes = std::vector<plan::Lane>(1)};
    rank.lanes[0].locations = locations;
    rank.lanes[0].steps = {{plan::StepKind::kMove, 0, 1, 1, 0, 0},
                           {plan::StepKind::kMove, 0, 1, 1, 2, 0}};
    return runs(exec::pages_of(rank, apart))[0] == 2;
  };
  using enum Place;
  CHECK(together({at(kInput, 0), at(kSlot, 0, 1), at(kInput, 0), at(kSlot, 0, 2)}));
  CHECK(together({at(kSlot, 0, 1), at(kOutput, 1), at(kInput, 0), at(kSlot, 0, 1)}, true));
  // In place that is the same memory.
  CHECK_FALSE(together({at(kSlot, 0, 1), at(kOutput, 1), at(kInput, 0), at(kSlot, 0, 1)}));
  CHECK_FALSE(together({at(kInput, 0), at(kSlot, 0, 1), at(kInput, 1), at(kSlot, 0, 1)}));
  CHECK_FALSE(together({at(kSlot, 0, 1), at(kScratch, 0), at(kSlot, 0, 2), at(kScratch, 0)}));
  CHECK_FALSE(together({at(kSlot, 0, 1), at(kOutput, 3), at(kOutput, 3), at(kSlot, 0, 2)}));
  CHECK(together({at(kSlot, 0, 1), at(kOutput, 2), at(kOutput, 3), at(kSlot, 0, 2)}));
  CHECK(together({at(kPeerInput, 0, 1), at(kOutput, 0), at(kPeerInput, 0, 2), at(kOutput, 1)}));
  CHECK_FALSE(
      together({at(kInput, 0), at(kPeerOutput, 0, 1), at(kPeerInput, 0, 1), at(kOutput, 1)}));
  CHECK(together({at(kInput, 0), at(kPeerOutput, 0, 1), at(kPeerInput, 0, 2), at(kScratch, 0)}));
}

TEST_CASE("steps that are many lie in several pages, all of them and in their order") {
  const std::vector<LanePage> all = pages("ring", Collective::kAllReduce, 64, 5);
  REQUIRE(all.size() > 1);
  const plan::Plan plan =
      build(*find_algorithm(Collective::kAllReduce, "ring"), {Collective::kAllReduce, 64});
  const plan::Lane& lane = plan.ranks[5].lanes[0];
  std::size_t next = 0;
  for (const LanePage& page : all) {
    for (unsigned s = 0; s < page.step_count; ++s, ++next) {
      const Step& step = lane.steps.at(next);
      CHECK(page.steps[s].chunk == step.chunk);
      CHECK(page.steps[s].source_count == step.source_count);
      for (std::uint32_t i = 0; i < step.end() - step.first; ++i)
        CHECK(page.locations[page.steps[s].first + i] == lane.locations[step.first + i]);
    }
  }
  CHECK(next == lane.steps.size());
}

}  // namespace
}  // namespace tutti
