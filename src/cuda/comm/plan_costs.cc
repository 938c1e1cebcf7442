#include "cuda/comm/plan_costs.h"

#include <algorithm>

#include <fmt/format.h>

#include "kernels/cuda/interpreter.h"
#include "plan/chunks.h"
#include "planner/kernel_phases.h"
#include "planner/kernel_shape.h"

namespace tutti::planner {
namespace {

/// In a call over multicast memory all ranks meet before and after.
constexpr int kMeetings = 2;
/// How much faster a plan has to be laid out otherwise, and with twice the lanes.
constexpr double kWorthLayout = 0.98, kWorthLanes = 0.98;
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
  return algorithm.applies(request.shape) &&
         (request.contract == Contract::kRelaxed ||
          algorithm.contract(request.shape) == Contract::kDeterministic);
}

}  // namespace

std::uint32_t DevicePlanCosts::lanes(const Algorithm& algorithm, const Request& request,
                                     std::uint32_t by_user, std::uint32_t /*by_source*/) const {
  if (!algorithm.applies(request.shape)) return 1;
  const Layout& layout = layout_of(algorithm, request);
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
  Layout layout = layout_of(*candidate.algorithm, request);
  layout.lanes = candidate.lanes;
  return time_of(*candidate.algorithm, request, layout);
}

DeviceRecipe DevicePlanCosts::recipe(const Candidate& candidate, const Request& request) const {
  if (candidate.copy_engines) return {copies_recipe(*candidate.algorithm, request)};
  Layout layout = layout_of(*candidate.algorithm, request);
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
  const std::size_t count =
      std::max<std::size_t>(1, request.bytes / blocks_of(request.shape) / size_of(kType));
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

const DevicePlanCosts::Layout& DevicePlanCosts::layout_of(const Algorithm& algorithm,
                                                          const Request& request) const {
  const auto [known, fresh] = layouts_.try_emplace({&algorithm, request.bytes});
  Layout& layout = known->second;
  if (!fresh) return layout;
  layout.mapped = request.mapped;
  if (!may_be_taken(algorithm, request)) return layout;
  auto us = find_lanes(algorithm, request, layout);
  const auto compete = [&](Layout other) {
    const auto other_us = find_lanes(algorithm, request, other);
    if (!us || !other_us || *other_us >= kWorthLayout * *us) return;
    layout = other;
    us = other_us;
  };
  if (orders_on(algorithm, request, true).size() >= 2)
    compete({.ordered = true, .mapped = request.mapped});
  // Ranks that touch each other's buffers meet before and after: slots may be faster.
  if (request.mapped) compete({.ordered = layout.ordered});
  for (const cuda::RingSet& set : machine_.flagged) {
    if (flagged_.contains(set.format) && own(algorithm, request) <= set.lanes &&
        request.bytes <= kKernelShape.most_flagged_bytes)
      compete({.format = set.format});
  }
  return layout;
}

/// Lanes double from the least on: the fewest that more of them are not enough faster than.
std::optional<double> DevicePlanCosts::find_lanes(const Algorithm& algorithm,
                                                  const Request& request, Layout& layout) const {
  const std::uint32_t most = most_lanes(algorithm, request, layout);
  layout.lanes = least_lanes(algorithm, request, layout);
  std::optional<double> us;
  for (Layout more = layout;; more.lanes = std::min(2 * more.lanes, most)) {
    const auto found = time_of(algorithm, request, more);
    if (!found) break;
    if (!us || *found < kWorthLanes * *us) {
      layout = more;
      us = found;
    }
    if (more.lanes >= most) break;
  }
  return us;
}

std::optional<double> DevicePlanCosts::time_of(const Algorithm& algorithm, const Request& request,
                                               const Layout& layout) const {
  const auto [known, fresh] = times_.try_emplace(
      {&algorithm, request.bytes, layout.ordered, layout.mapped, layout.format, layout.lanes});
  if (fresh) {
    Layout once = layout;
    once.lanes = 1;
    known->second = simulated_us(recipe_on(algorithm, request, once), layout, request.bytes);
  }
  return known->second;
}

/// With so many times the plan's lanes.
std::optional<double> DevicePlanCosts::simulated_us(const Recipe& recipe, const Layout& layout,
                                                    std::size_t bytes) const {
  const auto made = prepare(recipe);
  if (!made || events_of((*made)->plan) > kMostPlanEvents) return std::nullopt;
  const auto flagged = flagged_.find(layout.format);
  plan::CostModel model = flagged == flagged_.end() ? model_ : flagged->second;
  model.most_lanes = layout.lanes;
  model.most_events = kMostEvents;
  const std::size_t slot_bytes =
      cuda::data_in_slot(layout.format, slots_of(layout.format).slot_bytes);
  const std::size_t count =
      std::max<std::size_t>(1, bytes / blocks_of(recipe.shape) / size_of(kType));
  plan::Estimator all((*made)->plan, model, kType, slot_bytes, machine_.slots);
  const std::uint32_t lanes = all.lanes();
  if (lanes == layout.lanes) return all.run(count).microseconds;
  // Those were too many events: with fewer lanes, and slots as much larger.
  plan::Estimator fewer((*made)->plan, model, kType, slot_bytes * layout.lanes / lanes,
                        machine_.slots);
  return fewer.run(count).microseconds;
}

}  // namespace tutti::planner
