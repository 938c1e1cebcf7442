#include "planner/simulate.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/passes.h"
#include "planner/simulate_symmetry.h"

namespace tutti::planner {
namespace {

// Of one tile of all ranks and lanes: seconds, and a gigabyte of memory.
constexpr std::size_t kMostSteps = std::size_t{1} << 22;
// Layouts are compared by a message of so many bytes: latency counts little.
constexpr std::size_t kLarge = std::size_t{1} << 30;

std::size_t locations_of(const plan::RankPlan& rank) {
  std::size_t sum = 0;
  for (const plan::Lane& lane : rank.lanes) sum += lane.steps.size() + lane.locations.size();
  return sum;
}

// Elements of a block of a message of so many bytes in all.
std::size_t elements(std::size_t bytes, const plan::Shape& shape, DataType type) {
  const std::size_t blocks = std::max(plan::input_blocks(shape), plan::output_blocks(shape));
  return std::max<std::size_t>(1, bytes / size_of(type) / blocks);
}

topology::Pattern pattern_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return topology::Pattern::kAllReduce;
    case Collective::kReduceScatter: return topology::Pattern::kReduceScatter;
    case Collective::kAllGather: return topology::Pattern::kAllGather;
    case Collective::kBroadcast: return topology::Pattern::kBroadcast;
  }
  return topology::Pattern::kAllReduce;
}

}  // namespace

double algorithm_bandwidth(double bytes, double microseconds) {
  return microseconds > 0 ? bytes / microseconds * 1e-3 : 0;
}

double bus_factor(Collective collective, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce: return 2 * share;
    case Collective::kBroadcast: return 1;
    case Collective::kReduceScatter:
    case Collective::kAllGather: return share;
  }
  return 1;
}

struct Simulator::Prepared {
  plan::Plan plan;
  plan::CostModel model;
  bool symmetric = false;
  std::size_t lanes = 1;
  std::vector<std::string> names;  // Of resources, where they are not the machine's.
};

Simulator::Simulator(const topology::Graph& graph, std::span<const topology::NodeId> endpoints,
                     const SimulateOptions& options)
    : options_(options), machine_(graph, endpoints), layouts_(machine_.layouts()) {}
Simulator::~Simulator() = default;

plan::Shape Simulator::shape() const {
  return {options_.collective, machine_.rank_count(), options_.root, machine_.groups().size};
}

std::vector<const Algorithm*> Simulator::candidates() const {
  std::vector<const Algorithm*> found;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != options_.collective || !algorithm->applies(shape())) continue;
    if (options_.contract == Contract::kRelaxed ||
        algorithm->contract(shape()) == Contract::kDeterministic)
      found.push_back(algorithm);
  }
  return found;
}

Result<plan::Plan> Simulator::make_plan(const Algorithm& algorithm) const {
  const auto ranks = static_cast<std::size_t>(machine_.rank_count());
  const std::size_t one = locations_of(build(algorithm, shape(), Rank{machine_.rank_count() / 2}));
  if (one * ranks > kMostSteps) {
    return Error{Code::kUnsupported,
                 fmt::format("{} on {} ranks takes {} steps and locations, and its ranks are not "
                             "alike here; choose fewer ranks or an algorithm of fewer rounds",
                             algorithm.name, ranks, one * ranks)};
  }
  return plan::fuse(build(algorithm, shape()), static_cast<std::uint32_t>(options_.slots));
}

Result<const Simulator::Prepared*> Simulator::prepare(const Algorithm& algorithm,
                                                      const Protocol& protocol) {
  auto& place = prepared_[{&algorithm, &protocol}];
  if (place != nullptr) return static_cast<const Prepared*>(place.get());
  std::unique_ptr<Prepared> best;
  double least = 0;
  std::optional<plan::Plan> plan;
  for (const auto& layout : layouts_) {
    auto made = std::make_unique<Prepared>();
    std::optional<Symmetric> symmetric;
    if (options_.symmetry && !protocol.joins_in_switch)
      symmetric = find_symmetry(algorithm, shape(), machine_.model(protocol), layout,
                                machine_.groups().size, options_.channels);
    if (symmetric) {
      made->symmetric = true;
      made->lanes = layout.size() * symmetric->channels;
      made->plan = std::move(symmetric->plan);
      made->model = std::move(symmetric->model);
      for (const std::size_t resource : symmetric->representatives)
        made->names.push_back(machine_.name_of(resource));
    } else {
      if (!plan) {
        TUTTI_TRY(plan, make_plan(algorithm));
      }
      const auto lanes = static_cast<std::uint32_t>(layout.size());
      const std::size_t once = locations_of(plan->ranks[0]) * plan->ranks.size() * lanes;
      if (once > kMostSteps && best) continue;
      const auto channels = static_cast<std::uint32_t>(
          std::clamp<std::size_t>(kMostSteps / once, 1, options_.channels));
      made->plan = plan::replicate(*plan, lanes * channels);
      made->lanes = std::size_t{lanes} * channels;
      made->model = machine_.model(protocol);
      made->model.orders = layout;
    }
    const double time = estimate(*made, kLarge).microseconds;
    if (machine_.unreachable()) return *machine_.unreachable();
    if (best && time >= 0.999 * least) continue;
    least = time;
    best = std::move(made);
  }
  place = std::move(best);
  return static_cast<const Prepared*>(place.get());
}

plan::Estimate Simulator::estimate(const Prepared& prepared, std::size_t bytes) const {
  std::size_t count = elements(bytes, shape(), options_.type);
  if (prepared.symmetric) {  // All pieces alike: a cache line each at least.
    const std::size_t grain = prepared.plan.pieces * (64 / size_of(options_.type));
    count = (count + grain - 1) / grain * grain;
  }
  return plan::estimate(prepared.plan, count, options_.type, options_.slot_bytes, options_.slots,
                        prepared.model);
}

Result<Sample> Simulator::run(const Algorithm& algorithm, const Protocol& protocol,
                              std::size_t bytes) {
  TUTTI_TRY(const Prepared* prepared, prepare(algorithm, protocol));
  const plan::Estimate found = estimate(*prepared, bytes);
  Sample sample{.microseconds = protocol.base_us + found.microseconds,
                .algorithm = &algorithm,
                .protocol = &protocol,
                .lanes = prepared->lanes,
                .simulated_ranks = prepared->plan.ranks.size(),
                .bottleneck = {}};
  const auto busiest = std::max_element(found.busy_us.begin(), found.busy_us.end());
  if (busiest == found.busy_us.end() || sample.microseconds <= 0) return sample;
  const auto resource = static_cast<std::size_t>(busiest - found.busy_us.begin());
  sample.bottleneck =
      prepared->names.empty() ? machine_.name_of(resource) : prepared->names[resource];
  sample.bottleneck_share = *busiest / sample.microseconds;
  return sample;
}

Result<Sample> Simulator::run(const Algorithm& algorithm,
                              std::span<const Protocol* const> protocols, std::size_t bytes) {
  std::optional<Sample> best;
  for (const Protocol* protocol : protocols) {
    if (!machine_.has(*protocol)) continue;
    // The order in which a switch adds up is its own.
    if (protocol->joins_in_switch && options_.contract == Contract::kDeterministic &&
        reduces(options_.collective))
      continue;
    TUTTI_TRY(Sample sample, run(algorithm, *protocol, bytes));
    if (!best || sample.microseconds < best->microseconds) best = std::move(sample);
  }
  if (best) return *std::move(best);
  return Error{Code::kInvalidArgument,
               "simulate: the machine has none of these protocols, or the contract forbids them; "
               "there are " +
                   protocol_names()};
}

Result<const topology::Bound*> Simulator::bound(bool joins_in_switch) {
  const bool fewer = joins_in_switch && options_.collective == Collective::kAllReduce;
  auto found = bounds_.find(fewer);
  if (found == bounds_.end()) {
    // Every cut is crossed by the message, in both directions, whoever adds up: as in a broadcast.
    const topology::Pattern pattern =
        fewer ? topology::Pattern::kBroadcast : pattern_of(options_.collective);
    const bool rooted = options_.collective == Collective::kBroadcast;
    found = bounds_
                .emplace(fewer, topology::bound(
                                    machine_.graph(), pattern, machine_.groups().endpoints,
                                    {.root = rooted ? static_cast<std::size_t>(options_.root) : 0}))
                .first;
  }
  if (!found->second) return found->second.error();
  return static_cast<const topology::Bound*>(&*found->second);
}

Result<double> Simulator::bound_us(std::size_t bytes, bool joins_in_switch) {
  TUTTI_TRY(const topology::Bound* found, bound(joins_in_switch));
  const std::size_t blocks = std::max(plan::input_blocks(shape()), plan::output_blocks(shape()));
  // What is moved: whole elements for each block.
  const double moved = static_cast<double>(elements(bytes, shape(), options_.type) * blocks *
                                           size_of(options_.type));
  return found->seconds_per_mb.value() * moved;  // Seconds a MB are microseconds a byte.
}

Result<std::string> Simulator::bound_words(bool joins_in_switch) {
  TUTTI_TRY(const topology::Bound* found, bound(joins_in_switch));
  return found->cut.words;
}

}  // namespace tutti::planner
