#include "plan/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "plan/names.h"

namespace tutti::plan {
namespace {

// A clock of every rank is kept for every rank while mapped accesses are checked for races; this
// bounds that to 64 MB a lane. Ranks that map each other's memory are on one node, so it is plenty.
constexpr int kMaxMappedRanks = 4096;

template <class... Args>
Error plan_error(const Plan& plan, fmt::format_string<Args...> reason, Args&&... args) {
  return {Code::kInvalidPlan,
          fmt::format("plan {}: {}", plan.name, fmt::format(reason, std::forward<Args>(args)...))};
}

Status check_shape(const Plan& plan, const Limits& limits) {
  const Shape& shape = plan.shape;
  if (limits.slots == 0) return plan_error(plan, "no plan runs with 0 slots per channel");
  if (shape.rank_count < 1 || shape.rank_count > kMaxRanks)
    return plan_error(plan, "{} ranks: takes 1 to {}", shape.rank_count, kMaxRanks);
  if (plan.ranks.size() != static_cast<std::size_t>(shape.rank_count)) {
    return plan_error(plan, "is for {} ranks but describes {}", shape.rank_count,
                      plan.ranks.size());
  }
  if (shape.root < 0 || shape.root >= shape.rank_count) {
    return plan_error(plan, "root {}: takes 0 to {}", shape.root, shape.rank_count - 1);
  }
  int inner = 1;
  for (const int size : shape.groups.sizes) {
    if (size <= inner || size > kMaxRanks || size % inner != 0) {
      return plan_error(plan,
                        "groups of {} in groups of {}: takes a larger multiple, up "
                        "to {}",
                        inner, size, kMaxRanks);
    }
    inner = size;
  }
  if (!shape.weights.empty() && shape.weights.size() != plan.ranks.size()) {
    return plan_error(plan, "{} weights: takes one for each rank, or none", shape.weights.size());
  }
  for (const int weight : shape.weights) {
    if (weight < 0 || weight > kMaxWeight)
      return plan_error(plan, "weight {}: takes 0 to {}", weight, kMaxWeight);
  }
  for (std::size_t i = 0; i < shape.trees.size(); ++i) {
    if (root_of(shape.trees[i], shape.rank_count) < 0) {
      return plan_error(plan,
                        "tree {}: takes a weight of 1 to {}, and a parent for each "
                        "rank that leads to the root, whose parent is itself",
                        i, kMaxWeight);
    }
  }
  const std::uint64_t blocks = message_blocks(shape);
  if (plan.pieces < 1 || blocks * plan.pieces > 0xffffffffu) {
    return plan_error(plan, "{} pieces: takes 1 to {}", plan.pieces,
                      std::uint64_t{0xffffffffu} / blocks);
  }
  if (touches_peers(plan) && shape.rank_count > kMaxMappedRanks) {
    return plan_error(plan, "maps the memory of {} ranks: at most {} can be verified",
                      shape.rank_count, kMaxMappedRanks);
  }
  return ok();
}

// A rank's steps.
class RankCheck {
 public:
  RankCheck(const Plan& plan, std::uint32_t rank)
      : plan_(plan), rank_(rank), scratch_lane_(plan.ranks[rank].scratch_chunks, kNoLane) {}

  Status check() {
    const auto& lanes = plan_.ranks[rank_].lanes;
    if (lanes.empty() || lanes.size() > 0xffff) {
      return plan_error(plan_, "rank {}: {} lanes: takes 1 to 65535", rank_, lanes.size());
    }
    for (lane_ = 0; lane_ < lanes.size(); ++lane_) TUTTI_RETURN_IF_ERROR(check_lane(lanes[lane_]));
    return ok();
  }

 private:
  static constexpr std::uint32_t kNoLane = ~std::uint32_t{0};

  Status check_lane(const Lane& lane) {
    std::uint64_t next = 0;
    for (step_ = 0; step_ < lane.steps.size(); ++step_) {
      const Step& step = lane.steps[step_];
      if (step.kind == StepKind::kMove) {
        if (step.source_count == 0 || step.target_count == 0 || step.peer != 0 ||
            step.first != next)
          return error(
              "is not in normal form: a move needs sources and targets, after those of the "
              "step before");
        next += std::uint64_t{step.source_count} + step.target_count;
        if (next > lane.locations.size()) return error("names more locations than there are");
        TUTTI_RETURN_IF_ERROR(check_move(lane, step));
      } else if (step.kind == StepKind::kSignal || step.kind == StepKind::kWait) {
        if (step.source_count != 0 || step.target_count != 0 || step.first != 0 || step.chunk != 0)
          return error("is not in normal form: signal and wait have no locations");
        TUTTI_RETURN_IF_ERROR(check_peer(step.peer));
      } else {
        return error("is of no known kind");
      }
    }
    if (next != lane.locations.size()) return error("locations that belong to no step follow");
    return ok();
  }

  Status check_move(const Lane& lane, const Step& step) {
    if (step.chunk >= message_blocks(plan_.shape) * plan_.pieces) {
      return error("chunk {}: the message has {}", step.chunk,
                   message_blocks(plan_.shape) * plan_.pieces);
    }
    if (step.source_count > 1 && !reduces(plan_.shape.collective))
      return error("reduces {} sources, but {} only moves data", step.source_count,
                   tutti::to_string(plan_.shape.collective));
    const auto sources = lane.sources(step), targets = lane.targets(step);
    for (const Location& at : sources) TUTTI_RETURN_IF_ERROR(check_location(at, step.chunk, true));
    for (const Location& at : targets) TUTTI_RETURN_IF_ERROR(check_location(at, step.chunk, false));
    TUTTI_RETURN_IF_ERROR(check_distinct(sources, true));
    TUTTI_RETURN_IF_ERROR(check_distinct(targets, false));
    if (!one_value(targets))
      return error("writes a contribution and a result: that takes two steps");
    return check_scratch_forms(sources, targets);
  }

  Status check_location(const Location& at, std::uint32_t chunk, bool is_source) {
    if (at.form > Form::kResult) return error("a location is of no known form");
    if (!reduces(plan_.shape.collective) && at.form != Form::kResult) {
      return error("{}: {} moves only results", to_text(at, is_source),
                   tutti::to_string(plan_.shape.collective));
    }
    switch (at.place) {
      case Place::kInput:
      case Place::kPeerInput:
      case Place::kOutput:
      case Place::kPeerOutput: return check_buffer(at, chunk, is_source);
      case Place::kScratch: return check_scratch(at, is_source);
      case Place::kSlot:
        if (at.chunk != 0) return error("is not in normal form: a slot has no chunk");
        return check_peer(at.peer);
      case Place::kMulticast:
        if (at.chunk != 0 || (!is_source && at.peer != 0))
          return error("is not in normal form: a multicast slot has no chunk, its target no peer");
        if (plan_.shape.rank_count == 1) return error("multicast needs another rank");
        return is_source ? check_peer(at.peer) : ok();
    }
    return error("a location is in no known place");
  }

  Status check_buffer(const Location& at, std::uint32_t chunk, bool is_source) {
    const bool is_input = at.place == Place::kInput || at.place == Place::kPeerInput;
    if (is_input && !is_source) return error("writes to {}", to_text(at, false));
    const Form form = is_input ? form_of_input(plan_.shape) : Form::kResult;
    if (at.form != form)
      return error("an {} is a {}, not a {}", is_input ? "input" : "output", to_string(form),
                   to_string(at.form));
    TUTTI_RETURN_IF_ERROR(check_owner(at));
    const std::uint32_t owner = is_of_peer(at) ? at.peer : rank_;
    if (is_input && !has_input(plan_.shape, owner))
      return error("reads the input of rank {}, which is undefined: only the root's is given",
                   owner);
    if (!is_input && !has_output(plan_.shape, owner))
      return error("touches the output of rank {}, which gets none", owner);
    const std::uint32_t chunks = is_input ? input_chunks(plan_) : output_chunks(plan_);
    if (at.chunk >= chunks) return error("{}: there are {} chunks", to_text(at, is_source), chunks);
    const std::uint32_t is =
        (is_input ? chunk_of_input : chunk_of_output)(plan_.shape, plan_.pieces, owner, at.chunk);
    if (is == chunk) return ok();
    return error("{} is chunk {} of the message, the step is about chunk {}",
                 to_text(at, is_source), is, chunk);
  }

  // Input and output name no peer, mapped ones a legal one.
  Status check_owner(const Location& at) {
    if (is_of_peer(at)) return check_peer(at.peer);
    return at.peer == 0 ? ok() : error("is not in normal form: its own buffer has no peer");
  }

  Status check_scratch(const Location& at, bool is_source) {
    if (at.peer != 0) return error("is not in normal form: scratch has no peer");
    if (at.chunk >= scratch_lane_.size()) {
      return error("{}: rank {} has {} scratch chunks", to_text(at, is_source), rank_,
                   scratch_lane_.size());
    }
    // Lanes of a rank may be tiles apart, and a scratch chunk holds one tile.
    std::uint32_t& lane = scratch_lane_[at.chunk];
    if (lane == kNoLane) lane = lane_;
    if (lane != lane_) return error("{} is used by lane {} too", to_text(at, is_source), lane);
    return ok();
  }

  Status check_peer(std::uint32_t peer) {
    if (peer >= plan_.ranks.size())
      return error("peer {}: there are {} ranks", peer, plan_.ranks.size());
    if (peer == rank_) return error("names itself as its peer");
    return ok();
  }

  // An executor looks at the head of each ring once per step, so a step takes at most one slot of
  // each.
  Status check_distinct(std::span<const Location> locations, bool is_source) {
    seen_.clear();
    for (const Location& at : locations) {
      if (is_source && !is_ring(at)) continue;  // Reading the same memory twice is harmless.
      seen_.push_back((std::uint64_t{static_cast<std::uint8_t>(at.place)} << 48) |
                      (std::uint64_t{at.peer} << 32) | at.chunk);
    }
    std::ranges::sort(seen_);
    if (std::ranges::adjacent_find(seen_) != seen_.end())
      return error("{}", is_source ? "reads two slots of one ring: that takes two steps"
                                   : "writes the same target twice");
    return ok();
  }

  // A step may reduce in place, element by element; that needs elements of one size.
  Status check_scratch_forms(std::span<const Location> sources, std::span<const Location> targets) {
    for (const Location& target : targets) {
      if (target.place != Place::kScratch) continue;
      for (const Location& source : sources) {
        if (source.place == Place::kScratch && source.chunk == target.chunk &&
            source.form != target.form)
          return error("reads scratch[{}] as a {} and writes it as a {}", target.chunk,
                       to_string(source.form), to_string(target.form));
      }
    }
    return ok();
  }

  template <class... Args>
  Error error(fmt::format_string<Args...> reason, Args&&... args) const {
    return step_error(plan_, rank_, lane_, step_, fmt::format(reason, std::forward<Args>(args)...));
  }

  const Plan& plan_;
  const std::uint32_t rank_;
  std::uint32_t lane_ = 0;
  std::size_t step_ = 0;
  std::vector<std::uint32_t> scratch_lane_;  // Which lane uses a scratch chunk.
  std::vector<std::uint64_t> seen_;
};

}  // namespace

Error step_error(const Plan& plan, std::uint32_t rank, std::uint32_t lane, std::size_t step,
                 const std::string& reason) {
  return {Code::kInvalidPlan, fmt::format("plan {}: rank {}, lane {}, step {}: {}", plan.name, rank,
                                          lane, step, reason)};
}

bool touches_peers(const Plan& plan) {
  for (const RankPlan& rank : plan.ranks) {
    for (const Lane& lane : rank.lanes) {
      if (std::ranges::any_of(lane.locations, is_of_peer)) return true;
    }
  }
  return false;
}

bool sends_partials(const Plan& plan) {
  for (const RankPlan& rank : plan.ranks) {
    for (const Lane& lane : rank.lanes) {
      if (std::ranges::any_of(lane.locations, [](const Location& at) {
            return is_ring(at) && at.form == Form::kPartial;
          }))
        return true;
    }
  }
  return false;
}

Status check_structure(const Plan& plan, const Limits& limits) {
  TUTTI_RETURN_IF_ERROR(check_shape(plan, limits));
  std::uint64_t locations = 0;
  for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const std::uint32_t scratch = plan.ranks[rank].scratch_chunks;
    if (scratch > limits.scratch_chunks) {
      return plan_error(plan, "rank {}: {} scratch chunks: at most {}", rank, scratch,
                        limits.scratch_chunks);
    }
    TUTTI_RETURN_IF_ERROR(RankCheck(plan, rank).check());
    for (const Lane& lane : plan.ranks[rank].lanes) locations += lane.locations.size();
  }
  // Every output chunk is written by some location. Asked here so that nothing of the size of all
  // outputs is allocated for a plan that is far smaller. Message numbers are 32-bit.
  std::uint64_t outputs = 0;
  for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank)
    outputs += has_output(plan.shape, rank) ? 1 : 0;
  if (locations < output_chunks(plan) * outputs)
    return plan_error(plan, "has fewer locations than output chunks: some are never written");
  if (locations >= 0xffffffffu) return plan_error(plan, "has more than 2^32 locations");
  return ok();
}

int root_of(const SpanningTree& tree, int rank_count) {
  const auto ranks = static_cast<std::size_t>(rank_count);
  if (tree.parents.size() != ranks || tree.weight < 1 || tree.weight > kMaxWeight) return -1;
  int root = -1;
  for (int rank = 0; rank < rank_count; ++rank) {
    const int parent = tree.parents[static_cast<std::size_t>(rank)];
    if (parent < 0 || parent >= rank_count || (parent == rank && root >= 0)) return -1;
    if (parent == rank) root = rank;
  }
  // Each way up ends where an earlier one passed, or at the root.
  std::vector<int> passed(ranks, -1);
  for (int rank = 0; rank < rank_count; ++rank) {
    int at = rank;
    for (; at != root && passed[static_cast<std::size_t>(at)] < 0;
         at = tree.parents[static_cast<std::size_t>(at)])
      passed[static_cast<std::size_t>(at)] = rank;
    if (at != root && passed[static_cast<std::size_t>(at)] == rank) return -1;
  }
  return root;
}

}  // namespace tutti::plan
