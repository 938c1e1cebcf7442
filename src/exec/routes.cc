#include "exec/routes.h"

#include <algorithm>

#include "plan/hash.h"

namespace tutti::exec {
namespace {

void make_wire_work(BoundPlan& bound, const plan::RankPlan& plan) {
  if (bound.wire_work != nullptr) return;
  std::size_t most_sources = 0, most_targets = 0;
  for (const plan::Lane& lane : plan.lanes) {
    for (const plan::Step& step : lane.steps) {
      most_sources = std::max<std::size_t>(most_sources, step.source_count);
      most_targets = std::max<std::size_t>(most_targets, step.target_count);
    }
  }
  bound.wire_work = std::make_unique<kernels::WireWork>(most_sources, most_targets);
}

}  // namespace

Routes::Routes(const CallBoard& board, std::shared_ptr<const PlanSource> source, PlanTrials& trials)
    : board_(board),
      source_(std::move(source)),
      trials_(trials),
      links_(board.region(), board.team().me, board.team().remote_link) {}

Result<Route*> Routes::find(const ActiveCall& call, Access access) {
  const std::uint64_t count = common_count(call);
  const std::uint64_t hash =
      (call.word ^ count * 0x9e3779b97f4a7c15ULL ^ static_cast<std::uint64_t>(access)) *
      0xd6e8feb86659fd93ULL;
  const std::size_t at = hash >> 32 & (kRoutes - 1);
  Route* known = nullptr;
  for (Route* route : {&routes_[at], &routes_[at ^ 1]}) {
    if (route->word == call.word && route->count == count && route->access == access) known = route;
  }
  if (known != nullptr) known->online_tuning.begin();
  if (known != nullptr && known->which == known->online_tuning.plan()) return known;
  if (known != nullptr) trials_.count_try();
  Route& route = known != nullptr ? *known : routes_[routes_[at].word == 0 ? at : at ^ 1];
  TUTTI_TRY(route, make(call, access, known != nullptr ? known->online_tuning.plan() : 0,
                        known != nullptr ? &known->online_tuning : nullptr));
  return &route;
}

Result<Route> Routes::make(const ActiveCall& call, Access access, std::size_t which,
                           OnlineTuning* known) {
  TUTTI_TRY(const PlanChoice choice, source_->choose(call, access, which));
  const plan::Plan* const plan = choice.plan;
  const RegionConfig& config = board_.region().config();
  const plan::RankPlan& mine = plan->ranks[static_cast<std::size_t>(board_.team().me)];
  if (mine.lanes.size() > config.lanes) {
    return Error{Code::kInternal, "plan " + plan->name + " has more lanes than this communicator"};
  }
  BoundPlan& bound = bind(*plan);
  const std::uint64_t count = common_count(call);
  if (!call.wire.is_plain()) make_wire_work(bound, mine);
  TUTTI_TRY(const std::size_t fits, slot_elements(call, bound));
  const std::size_t grain = grain_of(call.type, call.wire);
  const std::size_t largest = plan::piece_of(count, plan->pieces, 0, grain).count;
  const std::size_t tile = bound.tiled ? std::max<std::size_t>(1, fits) : largest;
  return Route{
      .word = call.word,
      .count = count,
      .plan = &bound,
      .tile_elements = tile,
      .tiles = largest == 0 ? 0 : (largest + tile - 1) / tile,
      .access = access,
      .which = which,
      .online_tuning = known != nullptr ? std::move(*known) : online_tuning_of(call, choice)};
}

/// The elements of a tile.
Result<std::size_t> Routes::slot_elements(const ActiveCall& call, const BoundPlan& bound) const {
  const std::size_t bytes = board_.region().config().slot_bytes;
  if (call.wire.is_plain()) {
    const Form widest = bound.partials || call.scaled ? Form::kPartial : Form::kResult;
    return bytes / element_bytes(call.type, widest);
  }
  std::size_t fits = kernels::encoded_elements(call.wire.format, bytes);
  // Scratch is not encoded.
  if (bound.any_scratch)
    fits = std::min(fits, bytes / sizeof(float) / kernels::kWireBlock * kernels::kWireBlock);
  if (fits != 0 || !bound.tiled) return fits;
  return Error{Code::kUnsupported,
               call.describe() + ": a slot of " + std::to_string(bytes) +
                   " bytes holds no block of this wire; raise TUTTI_SLOT_BYTES"};
}

/// Where plans are compared, rings are to be warm: what they hold has gone through once.
OnlineTuning Routes::online_tuning_of(const ActiveCall& call, const PlanChoice& choice) const {
  const RegionConfig& config = board_.region().config();
  const std::size_t ring =
      std::max(config.slot_count, config.multicast_slots) * std::size_t{config.slot_bytes};
  const std::size_t block = std::max<std::size_t>(1, call.count * call.element);
  return trials_.make(choice.plans, choice.predicted_us,
                      1 + (choice.predicted_us > 0 ? 0 : ring / block));
}

BoundPlan& Routes::bind(const plan::Plan& plan) {
  const auto found = bound_.find(&plan);
  if (found != bound_.end()) return found->second;
  BoundPlan& bound = bound_[&plan];
  const std::size_t slot_bytes = board_.region().config().slot_bytes;
  const int me = board_.team().me;
  const plan::RankPlan& mine = plan.ranks[static_cast<std::size_t>(me)];
  bound.scratch.resize(mine.scratch_chunks * slot_bytes);
  bound.tiled = is_tiled(plan);
  bound.partials = has_partials(plan);
  bound.any_scratch = std::ranges::any_of(
      plan.ranks, [](const plan::RankPlan& rank) { return rank.scratch_chunks != 0; });
  bound.name.hash = plan::hash_of(plan);
  plan.name.copy(bound.name.text.data(), bound.name.text.size() - 1);
  for (std::size_t lane = 0; lane < mine.lanes.size(); ++lane) {
    bound.lanes.emplace_back(plan, me, lane, links_, bound.scratch.data(), slot_bytes);
  }
  return bound;
}

}  // namespace tutti::exec
