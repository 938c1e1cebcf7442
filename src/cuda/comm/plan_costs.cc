#include "cuda/comm/plan_costs.h"

#include <algorithm>

#include <fmt/format.h>

#include "cuda/mesh/suits.h"
#include "kernels/cuda/interpreter.h"
#include "plan/chunks.h"
#include "plan/structure.h"
#include "planner/kernel_phases.h"
#include "planner/kernel_shape.h"

namespace tutti::planner {
namespace {

/// In a call over multicast memory all ranks meet before and after.
constexpr int kMeetings = 2;
/// How near to the fastest layout of an algorithm's plan a simpler one has to come to be taken.
constexpr double kNearly = 0.98;
/// As between hosts (host_estimate.cc): every plan is estimated at a size's first call.
constexpr std::size_t kMostEvents = std::size_t{1} << 15;
constexpr std::size_t kMostPlanEvents = 4 * kMostEvents;
constexpr DataType kType = DataType::kFloat32;  // What is estimated is of these.

/// In one tile.
std::size_t events_of(const plan::Plan& plan) {
  std::size_t events = 0;
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) events += lane.steps.size() + lane.locations.size();
  }
  return events;
}

std::size_t blocks_of(const plan::Shape& shape) {
  return std::max(plan::input_blocks(shape), plan::output_blocks(shape));
}

/// Elements of a block.
std::size_t count_of(const Request& request) {
  return std::max<std::size_t>(1, request.bytes / blocks_of(request.shape) / size_of(kType));
}

/// Lanes of the algorithm's plan.
std::uint32_t own(const Algorithm& algorithm, const Request& request) {
  const auto lanes = build(algorithm, request.shape, Rank{0}).lanes.size();
  return std::max(1U, static_cast<std::uint32_t>(lanes));
}

/// In one lane, with no regard to how ranks are joined. Ranks read peers' inputs: a stream that
/// goes on after an error then writes nothing but its own rank's output.
Recipe copies_recipe(const Algorithm& algorithm, const Request& request) {
  const plan::Shape& shape = request.shape;
  return {.algorithm = &algorithm,
          .shape = {shape.collective, shape.rank_count, shape.root},
          .direct = plan::Mapped(true, false)};
}

bool may_be_taken(const Algorithm& algorithm, const Request& request) {
  if (!algorithm.applies(request.shape)) return false;
  if (request.contract != Contract::kRelaxed &&
      algorithm.contract(request.shape) != Contract::kDeterministic)
    return false;
  return request.wire.is_plain() || !plan::sends_partials(build(algorithm, request.shape));
}

}  // namespace

std::uint32_t DevicePlanCosts::lanes(const Algorithm& algorithm, const Request& request,
                                     std::uint32_t by_user, std::uint32_t /*by_source*/) const {
  if (!algorithm.applies(request.shape)) return 1;
  const Layout& layout = choice_of(algorithm, request).layout;
  if (by_user == 0) return layout.lanes;
  return std::min(by_user, most_lanes(algorithm, request, layout));
}

std::string DevicePlanCosts::refusal(const Algorithm& algorithm, std::uint32_t /*lanes*/,
                                     const Request& request) const {
  if (own(algorithm, request) <= machine_.lanes) return {};
  return fmt::format("takes more than the {} lanes that there are", machine_.lanes);
}

std::optional<std::string> DevicePlanCosts::multicast_refusal(const Request& request) const {
  const Collective collective = request.shape.collective;
  const bool gathers = collective == Collective::kAllGather || collective == Collective::kBroadcast;
  const bool sums =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  if (multicast_ == nullptr || (!gathers && !sums)) return std::nullopt;
  if (!request.wire.is_plain())
    return "switches don't encode; " + to_string(request.wire) + " takes a plan";
  const bool canonical = sums && request.contract == Contract::kDeterministic;
  if (canonical && collective == Collective::kReduceScatter)
    return "switches add up in an order of their own (relaxed)";
  if (canonical && machine_.device_of.size() > cuda::kMostSources)
    return fmt::format("a sum in canonical order is of up to {} ranks", cuda::kMostSources);
  return machine_.no_multicast;
}

std::optional<double> DevicePlanCosts::estimate_us(const Candidate& candidate,
                                                   const Request& request) const {
  if (candidate.copy_engines) return copies_us(request);
  if (candidate.multicast) {
    // As if with slots: they stand for the staging memory.
    Request plain = request;
    plain.mapped = {};
    plain.orders.clear();
    Candidate same = candidate;
    same.multicast = false;
    same.lanes = multicast_->lanes(*same.algorithm, plain, 0, 0);
    const auto us = multicast_->estimate_us(same, plain);
    if (!us) return us;
    return *us + kMeetings * (kKernelPhases.slots_lane_us() + kKernelPhases.flag_us);
  }
  const Choice& choice = choice_of(*candidate.algorithm, request);
  Layout layout = choice.layout;
  if (choice.us && candidate.lanes == layout.lanes) return choice.us;
  layout.lanes = candidate.lanes;
  return time_of(*candidate.algorithm, request, layout);
}

double DevicePlanCosts::rough_us(const Candidate& candidate, const Request& request) const {
  return planner::rough_us(*candidate.algorithm, request, model_);
}

DeviceRecipe DevicePlanCosts::recipe(const Candidate& candidate, const Request& request) const {
  if (candidate.copy_engines) return {copies_recipe(*candidate.algorithm, request)};
  // Layouts that are slower than the candidate are none.
  const double us = candidate.microseconds;
  Layout layout = choice_of(*candidate.algorithm, request, us > 0 ? us : plan::kBeyondLimit).layout;
  layout.lanes = candidate.lanes;
  return {recipe_on(*candidate.algorithm, request, layout), layout.format};
}

std::optional<std::string> DevicePlanCosts::copy_engines_refusal(const Request& request) const {
  const bool copies = has_copy_engines(request.shape.collective) && request.mapped.inputs &&
                      machine_.hosts.of.empty() && request.shape.rank_count > 1;
  if (!copies) return {};
  const auto us = copies_us(request);
  return fmt::format("only on request; estimated {:.4g} us", us.value_or(0));
}

/// A copy pays its start; the links say how fast it is.
std::optional<double> DevicePlanCosts::copies_us(const Request& request) const {
  const Algorithm* direct = find_algorithm(request.shape.collective, "direct");
  const auto made = prepare(copies_recipe(*direct, request));
  if (!made || events_of((*made)->plan) > kMostPlanEvents) return std::nullopt;
  constexpr KernelPhases kIs = kKernelPhases;
  const int peers = request.shape.rank_count - 1;
  plan::CostModel model = model_;
  model.lane_us = kIs.copy_engine_us * ((peers + kIs.copy_streams - 1) / kIs.copy_streams);
  model.lane_gigabytes_per_second = 0;
  model.most_lanes = 1;
  const std::size_t count = count_of(request);
  plan::Estimator all((*made)->plan, model, kType, count * size_of(kType), machine_.slots);
  return all.run(count).microseconds;
}

Recipe DevicePlanCosts::recipe_on(const Algorithm& algorithm, const Request& request,
                                  const Layout& layout) const {
  return {.algorithm = &algorithm,
          .shape = request.shape,
          .direct = layout.mapped,
          // Not what goes to mapped buffers: that pass knows the steps of algorithms.
          .fused_targets = layout.mapped ? 0U : cuda::kMostTargets,
          .slots = layout.mapped ? 1U : static_cast<std::uint32_t>(machine_.slots),
          .hosts = layout.mapped ? machine_.hosts.of : std::vector<int>{},
          .lanes = layout.lanes,
          .orders = orders_on(algorithm, request, layout.ordered)};
}

std::vector<plan::RankOrder> DevicePlanCosts::orders_on(const Algorithm& algorithm,
                                                        const Request& request,
                                                        bool ordered) const {
  if (!ordered) return {};
  std::vector<plan::RankOrder> orders = request.orders;
  orders.resize(std::min<std::size_t>(orders.size(), machine_.lanes / own(algorithm, request)));
  return orders;
}

std::uint32_t DevicePlanCosts::least_lanes(const Algorithm& algorithm, const Request& request,
                                           const Layout& layout) const {
  const std::size_t orders = orders_on(algorithm, request, layout.ordered).size();
  const std::size_t pieces =
      std::size_t{algorithm.pieces(request.shape)} * std::max<std::size_t>(1, orders);
  const std::uint32_t worth = lanes_worth(request.bytes / blocks_of(request.shape) / pieces,
                                          most_lanes(algorithm, request, layout));
  return std::max(1U, worth / 2);  // Each lane costs its start.
}

std::uint32_t DevicePlanCosts::most_lanes(const Algorithm& algorithm, const Request& request,
                                          const Layout& layout) const {
  const auto orders =
      static_cast<std::uint32_t>(orders_on(algorithm, request, layout.ordered).size());
  const std::uint32_t lanes = slots_of(layout.format).lanes;
  return std::max(1U, lanes / (own(algorithm, request) * std::max(1U, orders)));
}

cuda::RingSet DevicePlanCosts::slots_of(cuda::SlotFormat format) const {
  for (const cuda::RingSet& set : machine_.flagged) {
    if (set.format == format) return set;
  }
  return {cuda::SlotFormat::kSimple, machine_.lanes, machine_.slot_bytes};
}

/// The simplest first: as ranks are and with few lanes.
std::vector<DevicePlanCosts::Layout> DevicePlanCosts::layouts_of(const Algorithm& algorithm,
                                                                 const Request& request) const {
  std::vector<Layout> kinds{{.mapped = request.mapped}};
  if (orders_on(algorithm, request, true).size() >= 2)
    kinds.push_back({.ordered = true, .mapped = request.mapped});
  // Ranks that touch each other's buffers meet before and after: slots may be faster.
  for (std::size_t i = 0, mapped = request.mapped ? kinds.size() : 0; i < mapped; ++i)
    kinds.push_back({.ordered = kinds[i].ordered});
  for (const cuda::RingSet& set : machine_.flagged) {
    if (!flagged_.contains(set.format) || request.bytes > kKernelShape.most_flagged_bytes ||
        !request.wire.is_plain())
      continue;
    for (const bool ordered : {false, true}) {
      const std::size_t orders = orders_on(algorithm, request, ordered).size();
      if (ordered && orders < 2) continue;
      if (own(algorithm, request) * std::max<std::size_t>(1, orders) <= set.lanes)
        kinds.push_back({.ordered = ordered, .format = set.format});
    }
  }
  std::vector<Layout> layouts;
  for (Layout& kind : kinds) {
    const std::uint32_t most = most_lanes(algorithm, request, kind);
    for (kind.lanes = least_lanes(algorithm, request, kind);; kind.lanes *= 2) {
      kind.lanes = std::min(kind.lanes, most);
      layouts.push_back(kind);
      if (kind.lanes == most) break;
    }
  }
  return layouts;
}

const DevicePlanCosts::Choice& DevicePlanCosts::choice_of(const Algorithm& algorithm,
                                                          const Request& request,
                                                          double limit_us) const {
  const auto [known, fresh] = choices_.try_emplace({&algorithm, request.bytes});
  Choice& choice = known->second;
  if (!fresh) return choice;
  choice.layout.mapped = request.mapped;
  if (!may_be_taken(algorithm, request)) return choice;
  const std::vector<Layout> layouts = layouts_of(algorithm, request);
  choice.layout = layouts.front();
  std::vector<double> us(layouts.size(), plan::kBeyondLimit);
  // From the last on: long messages gain by lanes, short ones by flags in slots. What is slower
  // than nearly the fastest is not taken, so it is given up.
  for (std::size_t i = layouts.size(); i-- > 0;) {
    const auto found = time_of(algorithm, request, layouts[i], limit_us / kNearly);
    if (!found) continue;
    us[i] = *found;
    limit_us = std::min(limit_us, *found);
    choice.us = limit_us / kNearly;  // What takes at least so long was given up.
  }
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    if (us[i] == plan::kBeyondLimit || us[i] > limit_us / kNearly) continue;
    choice = {layouts[i], us[i]};
    break;
  }
  return choice;
}

void DevicePlanCosts::find_fastest(const Request& request) const {
  std::vector<std::pair<double, const Algorithm*>> by_guess;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != request.shape.collective || !may_be_taken(*algorithm, request) ||
        !refusal(*algorithm, 1, request).empty())
      continue;
    Layout layout{.mapped = request.mapped};
    Simulation* simulation = simulation_of(*algorithm, request, layout);
    if (simulation == nullptr || !exec::unsuited(simulation->plan).empty()) continue;
    by_guess.emplace_back(simulation->estimator.guess_us(count_of(request)), algorithm);
  }
  std::ranges::stable_sort(by_guess, {}, &std::pair<double, const Algorithm*>::first);
  double least = plan::kBeyondLimit;
  for (const auto& [guess, algorithm] : by_guess)
    least = std::min(least, choice_of(*algorithm, request, least).us.value_or(least));
}

/// Nothing, if it has too many steps; kBeyondLimit: longer than that.
std::optional<double> DevicePlanCosts::time_of(const Algorithm& algorithm, const Request& request,
                                               const Layout& layout, double limit_us) const {
  Simulation* simulation = simulation_of(algorithm, request, layout);
  if (simulation == nullptr) return std::nullopt;
  return simulation->run(count_of(request), layout.lanes, machine_.slots, limit_us);
}

DevicePlanCosts::Simulation* DevicePlanCosts::simulation_of(const Algorithm& algorithm,
                                                            const Request& request,
                                                            const Layout& layout) const {
  const auto [known, fresh] =
      simulations_.try_emplace({&algorithm, layout.ordered, layout.mapped, layout.format});
  if (!fresh) return known->second.get();
  Layout once = layout;
  once.lanes = 1;
  const auto made = prepare(recipe_on(algorithm, request, once));
  if (!made || events_of((*made)->plan) > kMostPlanEvents) return nullptr;
  const auto flagged = flagged_.find(layout.format);
  plan::CostModel model = flagged == flagged_.end() ? model_ : flagged->second;
  model.most_lanes = most_lanes(algorithm, request, layout);
  model.most_events = kMostEvents;
  const std::size_t slot_bytes =
      cuda::data_in_slot(layout.format, slots_of(layout.format).slot_bytes);
  known->second =
      std::make_unique<Simulation>((*made)->plan, std::move(model), slot_bytes, machine_.slots);
  return known->second.get();
}

DevicePlanCosts::Simulation::Simulation(const plan::Plan& of, plan::CostModel costs,
                                        std::size_t slot, int slots)
    : plan(of),
      model(std::move(costs)),
      slot_bytes(slot),
      estimator(plan, model, kType, slot_bytes, slots) {}

double DevicePlanCosts::Simulation::run(std::size_t count, std::uint32_t lanes, int slots,
                                        double limit_us) {
  const std::uint32_t found = estimator.lanes(lanes);
  if (found == lanes) return estimator.run(count, nullptr, lanes, limit_us).microseconds;
  // Those were too many events: with fewer lanes, and slots as much larger.
  plan::Estimator fewer(plan, model, kType, slot_bytes * lanes / found, slots);
  return fewer.run(count, nullptr, found, limit_us).microseconds;
}

}  // namespace tutti::planner
