#include "planner/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "plan/chunks.h"
#include "plan/estimate/traffic.h"
#include "plan/passes/passes.h"
#include "planner/machine_shape.h"
#include "planner/machine_trees.h"
#include "planner/planner.h"
#include "planner/simulate/symmetry.h"
#include "planner/weights.h"
#include "topology/graph/words.h"

namespace tutti::planner {
namespace {

// In one tile of all ranks and lanes. So many take seconds, and a gigabyte of memory.
constexpr std::size_t kMostSteps = std::size_t{1} << 22;
// Up to so many, all ranks' plans are made, though a few may stand for all.
constexpr std::size_t kFewSteps = std::size_t{1} << 18;
// In a plan of a few ranks, on all ranks and orders.
constexpr std::size_t kMostChannels = std::size_t{1} << 21;
// Ranks up to which the links of every pair are looked at: weights are for direct exchanges.
constexpr int kMostWeighted = 128;
// Layouts are compared by a message of so many bytes: latency counts little.
constexpr std::size_t kLarge = std::size_t{1} << 30;

// What the machine says about the shape: first with hosts as groups.
std::vector<plan::Shape> shapes_on(const MachineCost& machine, const SimulateOptions& options) {
  const Groups& groups = machine.groups();
  plan::Shape shape{options.collective, machine.rank_count(), options.root, groups.size};
  // A machine of its own, as all pairs are looked at: some may have no way that others don't need.
  const bool weighs = machine.rank_count() <= kMostWeighted;
  const auto listed = weighs ? groups.endpoints.size() : static_cast<std::size_t>(groups.size);
  const std::span<const topology::NodeId> first(groups.endpoints.data(), listed);
  MachineCost near(machine.graph(), first);
  const auto usable = std::find_if(protocols().begin(), protocols().end(),
                                   [&](const Protocol& protocol) { return near.has(protocol); });
  if (usable == protocols().end()) return {shape};
  const plan::CostModel model = near.model(*usable);
  if (weighs) {
    shape.weights = shares_for(machine.rank_count(), model);
    shape.trees = trees_for(shape, model);
  }
  std::vector<plan::Shape> shapes;
  for (plan::GroupSizes& nesting : nestings(groups, model)) {
    shapes.push_back(shape);
    shapes.back().groups = std::move(nesting);
  }
  return shapes;
}

// Elements of a block of a message of so many bytes in all.
std::size_t elements(std::size_t bytes, const plan::Shape& shape, DataType type) {
  const std::size_t blocks = std::max(plan::input_blocks(shape), plan::output_blocks(shape));
  return std::max<std::size_t>(1, bytes / size_of(type) / blocks);
}

// Whether a plan may have as many as it has.
bool has_lanes(const SimulateOptions& options, const Algorithm& algorithm,
               const plan::Shape& shape) {
  return options.most_lanes == 0 ||
         build(algorithm, shape, Rank{0}).lanes.size() <= options.most_lanes;
}

}  // namespace

double algorithm_bandwidth(double bytes, double microseconds) {
  return microseconds > 0 ? bytes / microseconds * 1e-3 : 0;
}

// A plan on the rank orders that suit it.
struct Simulator::Layout {
  plan::Plan plan;  // With one lane on each order.
  std::vector<std::vector<Rank>> orders;
  bool large = false;  // All ranks' plans together. Then a few ranks may stand for all.
};

struct Simulator::Prepared {
  const Layout& layout;
  const plan::CostModel model;
  plan::Estimator estimator;
  const std::uint32_t most_lanes;  // On every order.
  Prepared(const Layout& of, const plan::CostModel& whole, const SimulateOptions& options)
      : layout(of),
        model(model_of(of, whole, options)),
        estimator(of.plan, model, options.type, options.slot_bytes, options.slots),
        most_lanes(most_of(of, options)) {}

 private:
  static std::uint32_t most_of(const Layout& layout, const SimulateOptions& options) {
    if (options.most_lanes == 0) return options.channels;
    const std::size_t once = layout.plan.ranks[0].lanes.size() * layout.orders.size();
    return std::clamp(static_cast<std::uint32_t>(options.most_lanes / once), 1U, options.channels);
  }
  static plan::CostModel model_of(const Layout& layout, plan::CostModel model,
                                  const SimulateOptions& options) {
    model.orders = layout.orders;
    model.most_lanes = options.channels;
    model.most_events = options.most_events;
    model.may_be_alike = options.symmetry;
    return model;
  }
};

Simulator::Simulator(const topology::Graph& graph, std::span<const topology::NodeId> endpoints,
                     const SimulateOptions& options)
    : options_(options),
      machine_(graph, endpoints),
      shapes_(shapes_on(machine_, options)),
      orders_(machine_.layouts()) {
  if (!has_root(options.collective)) return;
  for (auto& orders : orders_) {
    for (std::vector<Rank>& order : orders) put_root(order, options.root);
  }
}
Simulator::~Simulator() = default;

std::vector<const plan::Shape*> Simulator::shapes_of(const Algorithm& algorithm) const {
  std::vector<const plan::Shape*> apply, keep;
  plan::Shape bare = shape();
  bare.groups = {};
  const bool without_groups = algorithm.applies(bare);  // Then it makes nothing of them.
  for (const plan::Shape& shape : shapes_) {
    if (!algorithm.applies(shape) || !has_lanes(options_, algorithm, shape)) continue;
    apply.push_back(&shape);
    if (options_.contract == Contract::kRelaxed ||
        algorithm.contract(shape) == Contract::kDeterministic)
      keep.push_back(&shape);
    if (without_groups) break;
  }
  return keep.empty() ? apply : keep;
}

std::vector<const Algorithm*> Simulator::candidates() const {
  std::vector<const Algorithm*> found;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != options_.collective) continue;
    const auto shapes = shapes_of(*algorithm);
    if (!shapes.empty() && (options_.contract == Contract::kRelaxed ||
                            algorithm->contract(*shapes[0]) == Contract::kDeterministic))
      found.push_back(algorithm);
  }
  return found;
}

// The algorithm's plan of all ranks; or, if that is large, of a few that stand for all. `all`:
// steps and locations of all ranks together.
Result<plan::Plan> Simulator::plan_for(const Algorithm& algorithm, const plan::Shape& shape,
                                       std::size_t orders, std::size_t all) const {
  const auto ranks = static_cast<std::size_t>(shape.rank_count);
  if (options_.symmetry && all > kFewSteps) {
    auto few = first_ranks(algorithm, shape);
    if (few &&
        plan::traffic(*few).channels.size() * (ranks / few->ranks.size()) * orders <= kMostChannels)
      return *std::move(few);
  }
  if (all > kMostSteps) {
    return Error{Code::kUnsupported,
                 fmt::format("{} on {} ranks takes {} steps and locations, and its ranks are not "
                             "alike here; choose fewer ranks or an algorithm of fewer rounds",
                             algorithm.name, ranks, all)};
  }
  return plan::fuse(build(algorithm, shape), static_cast<std::uint32_t>(options_.slots));
}

// Ranks that add up in canonical order have to be where that order says, in every lane; in a scan
// each has to be itself.
bool Simulator::may_lie(const Algorithm& algorithm, const plan::Shape& shape,
                        const std::vector<std::vector<Rank>>& orders) const {
  if (plan::allows_any_order(options_.collective, options_.contract) ||
      plan::allows_any_order(options_.collective, algorithm.contract(shape)))
    return true;
  return std::all_of(orders.begin(), orders.end(),
                     [scan = is_scan(options_.collective)](const auto& order) {
                       return scan ? std::ranges::is_sorted(order) : keeps_canonical_tree(order);
                     });
}

// The fastest of all shapes and rank orders, and its simulation.
Result<std::unique_ptr<Simulator::Prepared>> Simulator::lay_out(
    const Algorithm& algorithm, const plan::CostModel& model,
    std::unique_ptr<Layout>& layout) const {
  const auto shapes = shapes_of(algorithm);
  if (shapes.empty()) {
    return topology::invalid("{} does not apply to {} ranks on this machine", algorithm.name,
                             shape().rank_count);
  }
  std::unique_ptr<Prepared> best;
  std::optional<Error> failed;
  double least = plan::kBeyondLimit;
  for (const plan::Shape* listed : shapes) {
    plan::Shape shape = *listed;
    shape.trees = {};  // Large, so only where they are used.
    if (!algorithm.applies(shape)) shape.trees = listed->trees;
    for (auto orders : orders_) {
      if (!may_lie(algorithm, shape, orders)) continue;
      if (options_.most_lanes != 0) {
        const std::size_t own = build(algorithm, shape, Rank{0}).lanes.size();
        orders.resize(std::min(orders.size(), options_.most_lanes / own));
      }
      const std::size_t all = static_cast<std::size_t>(shape.rank_count) *
                              size_of_plan(build(algorithm, shape, Rank{shape.rank_count / 2}));
      auto plan = plan_for(algorithm, shape, orders.size(), all);
      if (!plan) {
        failed = std::move(plan.error());
        continue;
      }
      auto made =
          std::make_unique<Layout>(Layout{*std::move(plan), std::move(orders), all > kFewSteps});
      auto trial = std::make_unique<Prepared>(*made, model, options_);
      const bool compares = shapes.size() * orders_.size() > 1;
      const double time =
          compares
              ? estimate(*trial, kLarge, trial->most_lanes, nullptr, 0.999 * least).microseconds
              : 0;
      if (best != nullptr && time >= 0.999 * least) continue;
      least = time;
      best = std::move(trial);  // Before the layout that its predecessor needs.
      layout = std::move(made);
    }
  }
  if (best == nullptr) return *std::move(failed);
  return best;
}

Result<Simulator::Prepared*> Simulator::prepare(const Algorithm& algorithm,
                                                const Protocol& protocol) {
  auto& place = prepared_[{&algorithm, &protocol}];
  if (place != nullptr) return place.get();
  const plan::CostModel model = machine_.model(protocol);
  auto& layout = layouts_[{&algorithm, protocol.joins_in_switch}];
  if (layout != nullptr) {
    place = std::make_unique<Prepared>(*layout, model, options_);
    return place.get();
  }
  std::optional<Error>& failed = failed_[{&algorithm, protocol.joins_in_switch}];
  if (failed) return *failed;
  auto made = lay_out(algorithm, model, layout);
  if (!made) {
    failed = made.error();
    return *failed;
  }
  place = *std::move(made);
  return place.get();
}

// On every order, what a communicator would take.
std::uint32_t Simulator::least_lanes(const Prepared& prepared, std::size_t bytes) const {
  const std::size_t pieces = prepared.layout.plan.pieces * prepared.layout.orders.size();
  return lanes_worth(elements(bytes, shape(), options_.type) * size_of(options_.type) / pieces,
                     prepared.most_lanes);
}

// With at most so many lanes on every order.
plan::Estimate Simulator::estimate(Prepared& prepared, std::size_t bytes, std::uint32_t lanes,
                                   plan::Recording* recording, double limit_us) const {
  std::size_t count = elements(bytes, shape(), options_.type);
  // Pieces are rounded up to a cache line: if they differed, no two ranks would be alike.
  if (prepared.layout.large) {
    const std::size_t pieces =
        std::size_t{prepared.layout.plan.pieces} * prepared.estimator.lanes(lanes);
    const std::size_t grain = pieces * (64 / size_of(options_.type));
    count = (count + grain - 1) / grain * grain;
  }
  return prepared.estimator.run(count, recording, lanes, limit_us);
}

// Which of a kind works longest.
std::vector<Busy> Simulator::busiest(const plan::Estimate& estimate) const {
  std::vector<std::pair<std::size_t, double>> longest;  // By kind: resource and microseconds.
  for (std::size_t i = 0; i < estimate.busy_us.size(); ++i) {
    if (estimate.busy_us[i] <= 0) continue;
    const auto same = std::find_if(longest.begin(), longest.end(), [&](const auto& other) {
      return machine_.kind_of(other.first) == machine_.kind_of(i);
    });
    if (same == longest.end())
      longest.emplace_back(i, estimate.busy_us[i]);
    else if (estimate.busy_us[i] > same->second)
      *same = {i, estimate.busy_us[i]};
  }
  std::stable_sort(longest.begin(), longest.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<Busy> busy;
  for (const auto& [resource, us] : longest)
    busy.push_back({machine_.kind_of(resource), machine_.name_of(resource), us});
  return busy;
}

Result<Sample> Simulator::run(const Algorithm& algorithm, const Protocol& protocol,
                              std::size_t bytes, plan::Recording* recording, double limit_us) {
  TUTTI_TRY(Prepared * prepared, prepare(algorithm, protocol));
  // More lanes hide what one waits for, and fewer send fewer messages.
  std::uint32_t lanes = prepared->most_lanes;
  const double limit = limit_us - protocol.base_us;
  plan::Estimate found = estimate(*prepared, bytes, lanes, nullptr, limit);
  for (const std::uint32_t least = least_lanes(*prepared, bytes); lanes > least; lanes /= 2) {
    plan::Estimate fewer = estimate(*prepared, bytes, lanes / 2, nullptr, limit);
    const bool beyond = found.microseconds == plan::kBeyondLimit;  // Fewer may still be within it.
    if (!beyond && fewer.microseconds >= found.microseconds) break;
    found = std::move(fewer);
  }
  if (recording != nullptr) found = estimate(*prepared, bytes, lanes, recording);
  if (machine_.unreachable()) return *machine_.unreachable();
  const Layout& layout = prepared->layout;
  return Sample{.microseconds = protocol.base_us + found.microseconds,
                .algorithm = &algorithm,
                .protocol = &protocol,
                .shape = layout.plan.shape,
                .lanes = prepared->estimator.lanes(lanes),
                .orders = layout.orders.size(),
                .simulated_ranks = found.simulated_ranks,
                .messages = found.messages_on_critical_path,
                .latency_us = found.latency_us,
                .busy = busiest(found)};
}

double Simulator::microseconds(const plan::Plan& plan, const Protocol& protocol,
                               std::size_t bytes) {
  const plan::CostModel model = machine_.model(protocol);
  plan::Estimator estimator(plan, model, options_.type, options_.slot_bytes, options_.slots);
  return protocol.base_us + estimator.run(elements(bytes, shape(), options_.type)).microseconds;
}

Result<plan::Plan> Simulator::plan_of(const Sample& sample) {
  TUTTI_TRY(const Prepared* prepared, prepare(*sample.algorithm, *sample.protocol));
  return plan::replicate(prepared->layout.plan, static_cast<std::uint32_t>(sample.lanes));
}

// The order in which a switch adds up is its own.
bool Simulator::may_use(const Protocol& protocol, std::optional<Contract> contract) const {
  if (!machine_.has(protocol)) return false;
  // Where every value goes from one to one there is nothing that a switch could join.
  const Collective what = options_.collective;
  if (protocol.joins_in_switch && (what == Collective::kAllToAll || what == Collective::kGather ||
                                   what == Collective::kScatter || is_scan(what)))
    return false;
  return !protocol.joins_in_switch || contract.value_or(options_.contract) == Contract::kRelaxed ||
         !reduces(options_.collective);
}

Result<Sample> Simulator::run(const Algorithm& algorithm,
                              std::span<const Protocol* const> protocols, std::size_t bytes,
                              std::optional<Contract> contract) {
  std::optional<Sample> best;
  std::optional<Error> failed;
  for (const Protocol* protocol : protocols) {
    if (!may_use(*protocol, contract)) continue;
    if (best && least(*protocol, bytes) >= best->microseconds) continue;
    auto sample = run(algorithm, *protocol, bytes);
    if (!sample) {
      failed = std::move(sample.error());
      continue;
    }
    if (!best || sample->microseconds < best->microseconds) best = *std::move(sample);
  }
  if (best) return *std::move(best);
  if (failed) return *std::move(failed);
  return Error{Code::kInvalidArgument,
               "simulate: the machine has none of these protocols, or the contract forbids them; "
               "there are " +
                   protocol_names()};
}

// The least time of a protocol; cheap to compute.
double Simulator::least(const Protocol& protocol, std::size_t bytes) {
  const auto moves = bound_us(bytes, protocol.joins_in_switch);
  return protocol.base_us + (moves ? *moves / protocol.efficiency : 0);
}

Result<const topology::Bound*> Simulator::bound(bool joins_in_switch) {
  const bool fewer = joins_in_switch && options_.collective == Collective::kAllReduce;
  auto found = bounds_.find(fewer);
  if (found == bounds_.end()) {
    // Every cut is crossed by the message, in both directions, wherever the sum is made: as in a
    // broadcast.
    const topology::Pattern pattern =
        fewer ? topology::Pattern::kBroadcast : pattern_of(options_.collective);
    const auto ends = ends_of(options_.collective, options_.root, shape().rank_count,
                              [](int rank) { return static_cast<std::size_t>(rank); });
    found = bounds_
                .emplace(fewer, topology::bound(machine_.graph(), pattern,
                                                machine_.groups().endpoints, ends))
                .first;
  }
  if (!found->second) return found->second.error();
  return static_cast<const topology::Bound*>(&*found->second);
}

Result<double> Simulator::bound_us(std::size_t bytes, bool joins_in_switch) {
  TUTTI_TRY(const topology::Bound* found, bound(joins_in_switch));
  const std::size_t blocks = std::max(plan::input_blocks(shape()), plan::output_blocks(shape()));
  // Whole elements are moved, for each block.
  const double moved = static_cast<double>(elements(bytes, shape(), options_.type) * blocks *
                                           size_of(options_.type));
  return found->seconds_per_mb.value() * moved;  // Seconds a MB are microseconds a byte.
}

Result<std::string> Simulator::bound_words(bool joins_in_switch) {
  TUTTI_TRY(const topology::Bound* found, bound(joins_in_switch));
  return found->cut.words;
}

}  // namespace tutti::planner
