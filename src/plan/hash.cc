#include "plan/hash.h"

#include "base/hash.h"

namespace tutti::plan {
namespace {

void add(Hash& hash, const Step& step) {
  hash.add(static_cast<std::uint64_t>(step.kind) << 48 | std::uint64_t{step.peer} << 32 |
           std::uint64_t{step.source_count} << 16 | step.target_count);
  hash.add(std::uint64_t{step.first} << 32 | step.chunk);
}

void add(Hash& hash, const Location& at) {
  hash.add(static_cast<std::uint64_t>(at.place) << 56 | static_cast<std::uint64_t>(at.form) << 48 |
           std::uint64_t{at.peer} << 32 | at.chunk);
}

}  // namespace

std::uint64_t hash_of(const Plan& plan) {
  Hash hash;
  hash.add_all(plan.name);
  hash.add(static_cast<std::uint64_t>(plan.shape.collective));
  hash.add(static_cast<std::uint64_t>(plan.shape.rank_count));
  hash.add(static_cast<std::uint64_t>(plan.shape.root));
  hash.add_all(plan.shape.groups.sizes);
  hash.add_all(plan.shape.weights);
  hash.add(plan.shape.trees.size());
  for (const SpanningTree& tree : plan.shape.trees) {
    hash.add(static_cast<std::uint64_t>(tree.weight));
    hash.add_all(tree.parents);
  }
  hash.add(static_cast<std::uint64_t>(plan.contract) << 2 | std::uint64_t{plan.entry_barrier} << 1 |
           std::uint64_t{plan.apart});
  hash.add(plan.pieces);
  for (const RankPlan& rank : plan.ranks) {
    hash.add(rank.scratch_chunks);
    hash.add(rank.lanes.size());
    for (const Lane& lane : rank.lanes) {
      hash.add(lane.steps.size());
      for (const Step& step : lane.steps) add(hash, step);
      hash.add(lane.locations.size());
      for (const Location& at : lane.locations) add(hash, at);
    }
  }
  return hash.value();
}

}  // namespace tutti::plan
