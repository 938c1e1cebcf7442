// Each lane once on every order, with its share of every piece: what rank i of the plan does, rank
// order[i] does there. Blocks go with the ranks whose they are.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/check.h"
#include "plan/chunks.h"
#include "plan/passes/draft.h"
#include "plan/passes/passes.h"

namespace tutti::plan {
namespace {

/// One rank order, seen from the plan.
class Order {
 public:
  Order(const Plan& plan, const RankOrder& order)
      : shape_(plan.shape), pieces_(plan.pieces), order_(order), role_(order.size()) {
    for (std::size_t i = 0; i < order.size(); ++i) role_[order[i]] = i;
  }

  /// Which rank of the plan this rank is.
  std::size_t role_of(std::size_t rank) const { return role_[rank]; }

  Lane moved(Lane lane) const {
    const auto ranks = static_cast<std::uint64_t>(shape_.rank_count);
    const std::uint64_t blocks = message_blocks(shape_);
    for (Step& step : lane.steps) {
      if (step.kind != StepKind::kMove) {
        step.peer = order_[step.peer];
      } else if (blocks == ranks) {
        step.chunk = moved(step.chunk);
      } else if (blocks > 1) {  // From each rank to each.
        const std::uint32_t block = step.chunk / pieces_, n = static_cast<std::uint32_t>(ranks);
        step.chunk = (order_[block / n] * n + order_[block % n]) * pieces_ + step.chunk % pieces_;
      }
    }
    for (Location& at : lane.locations) {
      const bool input = at.place == Place::kInput || at.place == Place::kPeerInput,
                 output = at.place == Place::kOutput || at.place == Place::kPeerOutput;
      if ((input && input_blocks(shape_) > 1) || (output && output_blocks(shape_) > 1))
        at.chunk = moved(at.chunk);
      if (is_ring(at) || is_of_peer(at)) at.peer = order_[at.peer];
    }
    return lane;
  }

 private:
  /// In a message with a block for each rank.
  std::uint32_t moved(std::uint32_t chunk) const {
    return order_[chunk / pieces_] * pieces_ + chunk % pieces_;
  }

  const Shape& shape_;
  const std::uint32_t pieces_;
  const RankOrder& order_;
  std::vector<std::size_t> role_;
};

}  // namespace

std::optional<Plan> reorder(const Plan& plan, std::span<const RankOrder> orders) {
  TUTTI_CHECK(!orders.empty());
  Plan even = plan;  // What a lane does with its scratch does not depend on its rank.
  std::uint32_t scratch = 0;
  for (const RankPlan& rank : plan.ranks) scratch = std::max(scratch, rank.scratch_chunks);
  for (RankPlan& rank : even.ranks) rank.scratch_chunks = scratch;
  const auto shares = static_cast<std::uint32_t>(orders.size());
  even = replicate(even, shares);
  Plan result = even;
  result.name = plan.name + "+order";
  std::size_t at = 0;
  for (const RankOrder& one : orders) {
    if (one.size() != even.ranks.size()) return std::nullopt;
    const Order order(even, one);
    for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
      const std::vector<Lane>& lanes = even.ranks[order.role_of(rank)].lanes;
      for (std::size_t lane = at; lane < lanes.size(); lane += shares)
        result.ranks[rank].lanes[lane] = order.moved(lanes[lane]);
    }
    ++at;
  }
  trim_scratch(result);
  if (!holds(result)) return std::nullopt;
  return result;
}

}  // namespace tutti::plan
