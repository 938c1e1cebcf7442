// How long a call takes between ranks of a host, or of several, by plan/estimate/estimate.h: every
// rank computes on one of the CPUs, and shares it with others where there are more ranks than CPUs.
// What goes from host to host takes the way out of one and the way into the other, which all ranks
// of a host share.
#include <algorithm>
#include <map>
#include <mutex>
#include <tuple>

#include "base/fork.h"
#include "plan/chunks.h"
#include "plan/estimate/estimate.h"
#include "planner/place_costs.h"
#include "planner/select.h"

namespace tutti::planner {
namespace {

// A wait costs more where the rank waited for has no CPU: a switch, and a share of the others'
// turns. Measured with 4 and 8 ranks on 2 CPUs, from rank to rank: 2.4 and 4.3 us. A table's hop
// was measured among as many ranks.
constexpr double kSwitchUs = 1.1;
// Messages and tiles that are simulated together, at most.
constexpr std::size_t kMostEvents = std::size_t{1} << 18;
// Between hosts every plan that is not forced is estimated, at the first call of a size.
constexpr std::size_t kMostNetworkEvents = std::size_t{1} << 15;

const HostCosts& costs_of(const PlannerInputs& inputs) {
  return inputs.table != nullptr ? inputs.table->costs : inputs.costs;
}

double hop_us(const Request& request, const PlannerInputs& inputs) {
  const double us = costs_of(inputs).link.latency_us;
  const double turns =
      static_cast<double>(request.shape.rank_count) / std::max(1, inputs.usable_cpus);
  return inputs.table != nullptr || turns <= 1 ? us : us + kSwitchUs * turns;
}

/// Adds the ways out of and into each host, and the links between ranks over them.
void add_network(const PlannerInputs& inputs, const LinkCost& near, double switch_us,
                 plan::CostModel& model) {
  const std::vector<int>& of = inputs.hosts.of;
  const NetworkCost& cost = inputs.hosts.cost;
  const auto first = static_cast<std::uint32_t>(model.resources.size());
  const int hosts = *std::max_element(of.begin(), of.end()) + 1;
  for (int host = 0; host < hosts; ++host) {
    const double rate = inputs.hosts.rate_of(host);
    model.resources.push_back({.gigabytes_per_second = rate, .message_us = cost.message_us});
    model.resources.push_back({.gigabytes_per_second = rate});
  }
  const LinkCost far{cost.link.latency_us + switch_us, 0};
  model.link = [&of, first, near, far](Rank from, Rank to) {
    const auto out = static_cast<std::uint32_t>(of[static_cast<std::size_t>(from.value)]);
    const auto in = static_cast<std::uint32_t>(of[static_cast<std::size_t>(to.value)]);
    if (out == in) return plan::Path(near);
    return plan::Path(far, {{first + 2 * out, 1}, {first + 2 * in + 1, 1}});
  };
}

/// Adds what the graph of the hosts has, and the links between ranks over it.
void add_places(const PlannerInputs& inputs, const LinkCost& near, double switch_us,
                plan::CostModel& model) {
  const PlaceCosts& places = *inputs.places;
  const auto first = static_cast<std::uint32_t>(model.resources.size());
  model.resources.insert(model.resources.end(), places.resources.begin(), places.resources.end());
  const LinkCost far{inputs.hosts.cost.link.latency_us + switch_us, 0};
  model.link = [&places, &of = inputs.hosts.of, first, near, far](Rank from, Rank to) {
    const auto host = [&](Rank rank) { return of[static_cast<std::size_t>(rank.value)]; };
    plan::Path path(of.empty() || host(from) == host(to) ? near : far, places.between(from, to));
    for (plan::Use& use : path.uses) use.resource += first;
    return path;
  };
}

/// `inputs` has to outlive it.
plan::CostModel cost_model(const Request& request, const PlannerInputs& inputs) {
  const HostCosts& costs = costs_of(inputs);
  const LinkCost link{hop_us(request, inputs), costs.link.gigabytes_per_second};
  plan::CostModel model;
  model.link = [link](Rank, Rank) { return plan::Path(link); };
  const auto cpus = static_cast<std::uint32_t>(
      std::clamp(inputs.usable_cpus, 1, std::max(1, request.shape.rank_count)));
  model.resources.resize(cpus, {.gigabytes_per_second = costs.reduce_gigabytes_per_second});
  const bool one_host = inputs.hosts.of.empty();
  const auto ranks = static_cast<std::uint32_t>(std::max(1, request.shape.rank_count));
  model.compute = [=](Rank rank) {
    const auto r = static_cast<std::uint32_t>(rank.value);
    // Ranks in a row are of the same host, as a rule.
    return plan::Use{
        one_host ? r % cpus : static_cast<std::uint32_t>(std::uint64_t{r} * cpus / ranks), 1};
  };
  const double switch_us = link.latency_us - costs.link.latency_us;
  if (inputs.places != nullptr)
    add_places(inputs, link, switch_us, model);
  else if (!one_host)
    add_network(inputs, link, switch_us, model);
  return model;
}

/// Estimates that were made in this process: by all that they depend on.
auto key_of(const Algorithm* algorithm, const Request& request, const PlannerInputs& inputs) {
  const HostCosts& costs = costs_of(inputs);
  const Hosts& hosts = inputs.hosts;
  return std::tuple(algorithm, request.shape, bool(request.mapped), request.read, request.shared,
                    request.vector_variant, request.bytes, inputs.usable_cpus,
                    inputs.table != nullptr, costs.link.latency_us, costs.link.gigabytes_per_second,
                    costs.reduce_gigabytes_per_second, inputs.slot_bytes, inputs.slots, hosts.of,
                    hosts.cost.link.latency_us, hosts.cost.link.gigabytes_per_second,
                    hosts.cost.message_us, hosts.rates,
                    inputs.places == nullptr ? 0 : inputs.places->hash);
}
using EstimateKey =
    std::invoke_result_t<decltype(key_of), const Algorithm*, Request, PlannerInputs>;
struct Estimates {
  std::mutex mutex;
  std::map<EstimateKey, std::optional<double>> known;
};
constexpr std::size_t kMostKnown = 4096;

Estimates& estimates() {
  static auto* const instance = new Estimates();  // Threads may still ask when the process ends.
  return *instance;
}
const HeldAcrossFork estimates_held(ForkOrder::kEstimates,
                                    []() -> std::mutex& { return estimates().mutex; });

/// With slots of `slot_bytes` or more: tiles are made so large that about `most_events` events are
/// simulated, of which a tile has `tile_events`.
struct PlanSize {
  std::size_t slot_bytes = 0;
  int slots = 1;
  std::size_t tile_events = 1, most_events = 1;
};
double simulated_us(const plan::Plan& plan, const plan::CostModel& model, std::size_t bytes,
                    const PlanSize& size, plan::Recording* recording) {
  const std::size_t blocks =
      std::max(plan::input_blocks(plan.shape), plan::output_blocks(plan.shape));
  const std::size_t block_bytes = bytes / blocks;
  // Fewer, larger tiles where there are too many to simulate.
  const std::size_t tiles = std::max<std::size_t>(1, size.most_events / size.tile_events);
  const std::size_t slot_bytes = std::max(size.slot_bytes, block_bytes / plan.pieces / tiles);
  plan::Estimator estimator(plan, model, DataType::kFloat32, slot_bytes, size.slots);
  return estimator.run(std::max<std::size_t>(1, block_bytes / 4), recording).microseconds;
}

}  // namespace

std::vector<std::size_t> ranks_on(const std::vector<int>& hosts) {
  std::vector<std::size_t> on;
  for (const int host : hosts) {
    const auto at = static_cast<std::size_t>(host);
    if (at >= on.size()) on.resize(at + 1);
    ++on[at];
  }
  return on;
}

bool some_share_memory(const std::vector<int>& hosts) {
  const std::vector<std::size_t> on = ranks_on(hosts);
  return hosts.empty() || std::ranges::any_of(on, [](std::size_t n) { return n > 1; });
}

std::size_t most_pairs_across(const std::vector<int>& hosts) {
  std::size_t most = 0;
  for (const std::size_t here : ranks_on(hosts))
    most = std::max(most, here * (hosts.size() - here));
  return most;
}

std::optional<double> simulate_us(const Algorithm& algorithm, const Request& request,
                                  const PlannerInputs& inputs, plan::Recording* recording) {
  const plan::Shape& shape = request.shape;
  const plan::RankPlan one = build(algorithm, shape, Rank{shape.rank_count / 2});
  std::size_t events = 0;
  for (const plan::Lane& lane : one.lanes) events += lane.steps.size() + lane.locations.size();
  events = std::max<std::size_t>(1, events * static_cast<std::size_t>(shape.rank_count));
  if (events > kMostEstimated) return std::nullopt;
  const auto made = prepare(recipe_of(algorithm, request, inputs, 1));
  if (!made) return std::nullopt;
  return simulated_us((*made)->plan, cost_model(request, inputs), request.bytes,
                      {.slot_bytes = inputs.slot_bytes,
                       .slots = std::max(1, inputs.slots),
                       .tile_events = events,
                       .most_events = inputs.hosts.of.empty() ? kMostEvents : kMostNetworkEvents},
                      recording);
}

double rough_us(const Algorithm& algorithm, const Request& request, const PlannerInputs& inputs) {
  return rough_us(algorithm, request, cost_model(request, inputs));
}

std::optional<double> estimate_us(const Algorithm& algorithm, const Request& request,
                                  const PlannerInputs& inputs) {
  const EstimateKey key = key_of(&algorithm, request, inputs);
  {
    const std::lock_guard lock(estimates().mutex);
    if (const auto found = estimates().known.find(key); found != estimates().known.end())
      return found->second;
  }
  const auto us = simulate_us(algorithm, request, inputs, nullptr);
  const std::lock_guard lock(estimates().mutex);
  if (estimates().known.size() >= kMostKnown) estimates().known.clear();
  estimates().known[key] = us;
  return us;
}

double estimate_eager_us(const Request& request, const PlannerInputs& inputs) {
  const HostCosts& costs = costs_of(inputs);
  const double n = request.shape.rank_count;
  const CollectiveTraits traits = traits_of(request.shape.collective);
  const auto bytes = static_cast<double>(request.bytes);
  // `bytes` is the larger of input and output: what a rank writes, and what it reads from all.
  const double given = bytes / (traits.output_each && !traits.input_each ? n : 1);
  const double read = traits.root_input                         ? given
                      : traits.input_each && traits.output_each ? given
                                                                : given * n;
  const double turns = std::max(1.0, n / std::max(1, inputs.usable_cpus));
  const double moved = 2 * given + read;
  if (const Hosts& hosts = inputs.hosts; !hosts.of.empty()) {
    // Every rank of a host sends to all that are elsewhere, one after the other.
    const auto sent = static_cast<double>(most_pairs_across(hosts.of));
    return hosts.cost.link.latency_us + turns * moved * 1e-3 / costs.reduce_gigabytes_per_second +
           sent * (hosts.cost.message_us + given * 1e-3 / hosts.cost.link.gigabytes_per_second);
  }
  return hop_us(request, inputs) + turns * moved * 1e-3 / costs.reduce_gigabytes_per_second;
}

}  // namespace tutti::planner
