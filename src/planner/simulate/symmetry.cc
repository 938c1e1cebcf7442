#include "planner/simulate/symmetry.h"

#include <algorithm>
#include <tuple>

#include "plan/passes/draft.h"

namespace tutti::planner {
namespace {

constexpr std::size_t kMostLocations = std::size_t{1} << 25;  // In all ranks listed.
constexpr int kLooks = 16;                                    // At ranks, where one stands for all.

bool has_peer(const plan::Location& at, bool is_source) {
  using plan::Place;
  return at.place == Place::kSlot || at.place == Place::kPeerInput ||
         at.place == Place::kPeerOutput || (at.place == Place::kMulticast && is_source);
}

// Plans of single ranks, as the simulation runs them, and whether they are alike.
class Ranks {
 public:
  Ranks(const Algorithm& algorithm, const plan::Shape& shape)
      : algorithm_(algorithm), shape_(shape) {}

  plan::RankPlan build(int rank) const {
    plan::RankPlan plan = tutti::build(algorithm_, shape_, Rank{rank});
    for (plan::Lane& lane : plan.lanes) {
      plan::DraftLane draft = plan::to_draft(lane);
      if (plan::join_moves(draft, plan::Join::kAll)) lane = plan::to_lane(draft);
    }
    return plan;
  }

  /// Whether the first ranks stand for all: some others of each are alike.
  bool stand_for_all(const std::vector<plan::RankPlan>& first) const {
    const auto listed = static_cast<int>(first.size());
    const int images = shape_.rank_count / listed;
    const int looks = std::min(std::max(3, kLooks / listed), images - 1);
    for (int rank = 0; rank < listed; ++rank) {
      for (int look = 1; look <= looks; ++look) {
        const int other = rank + look * (images - 1) / looks * listed;
        if (!alike(first[static_cast<std::size_t>(rank)], rank, build(other), other)) return false;
      }
    }
    return true;
  }

 private:
  /// Whether rank `other` does what `rank` does, seen from itself.
  bool alike(const plan::RankPlan& a, int rank, const plan::RankPlan& b, int other) const {
    if (a.lanes.size() != b.lanes.size()) return false;
    for (std::size_t lane = 0; lane < a.lanes.size(); ++lane) {
      const std::size_t steps = a.lanes[lane].steps.size();
      if (steps != b.lanes[lane].steps.size()) return false;
      for (std::size_t i = 0; i < steps; ++i) {
        // As a rule they are alike as they stand; only else is it worth putting them in order.
        if (!same(a.lanes[lane], rank, b.lanes[lane], other, i) &&
            seen(a.lanes[lane], i, rank) != seen(b.lanes[lane], i, other))
          return false;
      }
    }
    return true;
  }

  // Whether a step is the same, seen from these ranks, in the order in which it is written.
  bool same(const plan::Lane& a, int rank, const plan::Lane& b, int other,
            std::size_t index) const {
    const plan::Step &x = a.steps[index], &y = b.steps[index];
    if (x.kind != y.kind || x.source_count != y.source_count || x.target_count != y.target_count)
      return false;
    if (x.kind != plan::StepKind::kMove) return distance(rank, x.peer) == distance(other, y.peer);
    for (std::uint32_t i = 0; i < std::uint32_t{x.source_count} + x.target_count; ++i) {
      const plan::Location &from = a.locations[x.first + i], &to = b.locations[y.first + i];
      if (from.place != to.place || from.form != to.form) return false;
      if (has_peer(from, i < x.source_count) &&
          distance(rank, from.peer) != distance(other, to.peer))
        return false;
    }
    return true;
  }
  using Seen = std::vector<std::tuple<int, int, int, int>>;
  int distance(int rank, int peer) const {
    return (peer - rank + shape_.rank_count) % shape_.rank_count;
  }
  // A step without chunks, its sources and targets in an order of their own.
  Seen seen(const plan::Lane& lane, std::size_t index, int rank) const {
    const plan::Step& step = lane.steps[index];
    if (step.kind != plan::StepKind::kMove)
      return {{static_cast<int>(step.kind), 0, 0, distance(rank, step.peer)}};
    Seen all;
    for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i) {
      const plan::Location& at = lane.locations[step.first + i];
      const bool is_source = i < step.source_count;
      all.emplace_back(is_source ? 0 : 1, static_cast<int>(at.place), static_cast<int>(at.form),
                       has_peer(at, is_source) ? distance(rank, at.peer) : 0);
    }
    std::sort(all.begin(), all.end());
    return all;
  }

  const Algorithm& algorithm_;
  const plan::Shape& shape_;
};

}  // namespace

std::size_t size_of_plan(const plan::RankPlan& rank) {
  std::size_t sum = 0;
  for (const plan::Lane& lane : rank.lanes) sum += lane.steps.size() + lane.locations.size();
  return sum;
}

std::optional<plan::Plan> first_ranks(const Algorithm& algorithm, const plan::Shape& shape) {
  const int n = shape.rank_count;
  if (has_root(shape.collective) || is_scan(shape.collective)) return std::nullopt;
  const Ranks ranks(algorithm, shape);
  plan::Plan plan{.name = std::string(algorithm.name),
                  .shape = shape,
                  .contract = algorithm.contract(shape),
                  .pieces = algorithm.pieces(shape),
                  .ranks = {}};
  std::size_t size = 0;
  for (int listed = 1; listed <= n / 2; ++listed) {
    if (n % listed != 0) continue;
    while (static_cast<int>(plan.ranks.size()) < listed) {
      plan.ranks.push_back(ranks.build(static_cast<int>(plan.ranks.size())));
      size += size_of_plan(plan.ranks.back());
      if (size > kMostLocations) return std::nullopt;
    }
    if (ranks.stand_for_all(plan.ranks)) return plan;
  }
  return std::nullopt;
}

}  // namespace tutti::planner
