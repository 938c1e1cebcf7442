#include "tools/topo/device_choices.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "cuda/comm/graph_costs.h"
#include "cuda/mesh/suits.h"
#include "kernels/cuda/interpreter.h"
#include "planner/kernel_shape.h"
#include "planner/simulate/simulate.h"
#include "topology/embedding/routes.h"
#include "topology/graph/words.h"

namespace tutti::tools {
namespace {

using cuda::SlotFormat;
using topology::NodeId;
using topology::NodeKind;

constexpr int kHopper = 90;
/// GPUs from Hopper on, and those of AMD, are taken to have those of H100; others those of A100.
constexpr int kMultiprocessors = 132, kMultiprocessorsBefore = 108;
constexpr std::size_t kMostEvents = std::size_t{1} << 17;  // A plan's: some ms.

std::vector<std::string> give_buses(topology::Graph& graph) {
  std::vector<std::string> buses;
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    std::string& bus = graph[gpu].bus;
    if (bus.empty()) bus = fmt::format("0fff:{:02x}:00.0", buses.size());
    buses.push_back(bus);
  }
  return buses;
}

/// The GPUs of a host with what CUDA and NVML would say of their links.
planner::DeviceMachine links_within(const topology::Graph& graph) {
  planner::DeviceMachine machine;
  topology::Router router(graph);
  const auto gpus = graph.all(NodeKind::kGpu);
  const planner::CommunicatorShape shape = communicator_shape(graph);
  machine.lanes = shape.lanes;
  machine.slot_bytes = shape.slot_bytes;
  machine.slots = static_cast<int>(shape.slot_count);
  for (const NodeId gpu : gpus) {
    machine.device_of.push_back(static_cast<int>(machine.device_of.size()));
    for (const NodeId peer : gpus) {
      const bool fast = router.hop(gpu, peer, topology::Over::kFast).has_value();
      machine.links.push_back(gpu == peer ? planner::DeviceLink::kSame
                              : fast      ? planner::DeviceLink::kNvlink
                                          : planner::DeviceLink::kPcie);
    }
  }
  std::set<int> capabilities;
  for (const NodeId gpu : gpus)
    capabilities.insert(static_cast<int>(topology::number_fact(graph[gpu], "sm").value_or(0)));
  if (capabilities.size() == 1) machine.capability = *capabilities.begin();
  machine.flagged = planner::flagged_rings(machine);
  machine.direct.resize(machine.links.size());
  for (const topology::Link& link : graph.links) {
    const auto place = [&](NodeId node) {
      return static_cast<std::size_t>(std::find(gpus.begin(), gpus.end(), node) - gpus.begin());
    };
    const std::size_t a = place(link.a), b = place(link.b), n = gpus.size();
    if (!is_fast(link.kind) || a == n || b == n) continue;
    machine.direct[a * n + b] = link.forward.value;
    machine.direct[b * n + a] = link.backward.value;
  }
  return machine;
}

const planner::Protocol& protocol_of(SlotFormat format) {
  constexpr std::string_view kNames[] = {"slots", "packed", "lines"};
  return *planner::find_protocol(kNames[static_cast<std::size_t>(format)]);
}

constexpr std::string_view kOneShot = "one_shot";  // The algorithm of the eager path.

struct Taken {
  planner::Candidate candidate;
  SlotFormat format = SlotFormat::kSimple;
  const plan::Plan* plan = nullptr;
  std::size_t orders = 1;
};

/// The first of the list that kernels can run.
Result<Taken> first_plan(const planner::Request& request, const planner::DeviceMachine& machine) {
  TUTTI_TRY(const auto plans, planner::device_plans(request, machine));
  for (const planner::Candidate& one : plans) {
    const planner::DeviceRecipe made = planner::device_recipe(one, request, machine);
    TUTTI_TRY(const planner::VerifiedPlan* verified, planner::prepare(made.recipe));
    if (exec::unsuited(verified->plan).empty())
      return Taken{one, made.format, &verified->plan,
                   std::max<std::size_t>(1, made.recipe.orders.size())};
  }
  return topology::invalid("kernels can run no plan");
}

}  // namespace

planner::CommunicatorShape communicator_shape(const topology::Graph& graph,
                                              const Settings& settings) {
  const auto gpus = graph.all(NodeKind::kGpu);
  const bool large = std::all_of(gpus.begin(), gpus.end(), [&](NodeId gpu) {
    return topology::number_fact(graph[gpu], "sm").value_or(0) >= kHopper ||
           !topology::fact(graph[gpu], "gfx").empty();
  });
  return planner::communicator_shape(
      {large ? kMultiprocessors : kMultiprocessorsBefore, gpus.size()}, settings);
}

std::string name_of(const TimedChoice& choice) {
  constexpr std::string_view kMarks[] = {"", "*", "+"};
  const std::string_view mark = kMarks[static_cast<std::size_t>(choice.format)];
  return fmt::format("{}{}", choice.algorithm, choice.eager ? " (eager)" : mark);
}

planner::DeviceMachine device_machine(std::span<const topology::Graph* const> hosts) {
  planner::DeviceMachine machine;
  std::vector<std::pair<std::size_t, std::size_t>> ranks;  // Its host, and its rank there.
  std::vector<planner::DeviceMachine> parts;
  for (const topology::Graph* host : hosts) {
    parts.push_back(links_within(*host));
    for (std::size_t rank = 0; rank < parts.back().device_of.size(); ++rank)
      ranks.emplace_back(parts.size() - 1, rank);
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& [host, place] = ranks[rank];
    machine.device_of.push_back(static_cast<int>(rank));
    machine.hosts.of.push_back(static_cast<int>(host));
    for (const auto& [other, there] : ranks) {
      machine.links.push_back(host == other ? parts[host].link(place, there)
                                            : planner::DeviceLink::kNetwork);
      machine.direct.push_back(host == other ? parts[host].direct_rate(place, there) : 0);
    }
  }
  const std::size_t size = parts.front().device_of.size();
  const bool alike = std::all_of(parts.begin(), parts.end(),
                                 [&](const auto& part) { return part.device_of.size() == size; });
  if (alike) machine.groups = static_cast<int>(size);
  machine.lanes = parts.front().lanes;  // And no slots with flags, as there is a network.
  // With what kernels pay for a hop, what the simulator's protocol pays for one over a network.
  machine.hosts.cost = {.link = {7, 10}, .message_us = 0.3};
  machine.by_nics = machine.gpudirect = true;
  return machine;
}

Result<planner::DeviceMachine> with_graphs(planner::DeviceMachine machine,
                                           std::span<const topology::Graph* const> hosts) {
  std::vector<std::string> buses;
  std::map<const topology::Graph*, std::shared_ptr<const topology::Graph>> kinds;
  std::vector<std::shared_ptr<const topology::Graph>> graphs;
  for (const topology::Graph* host : hosts) {
    auto graph = *host;
    for (std::string& bus : give_buses(graph)) buses.push_back(std::move(bus));
    auto& kind = kinds[host];
    if (kind == nullptr) kind = std::make_shared<const topology::Graph>(std::move(graph));
    graphs.push_back(kind);
  }
  TUTTI_TRY(auto costs, planner::graph_costs(graphs, machine, buses));
  machine.graph = std::make_shared<const planner::GraphCosts>(std::move(costs));
  return machine;
}

Result<planner::DeviceMachine> device_machine(const topology::Graph& graph) {
  const std::size_t hosts = graph.all(NodeKind::kHost).size();
  const std::size_t gpus = graph.all(NodeKind::kGpu).size();
  if (hosts > 1) return topology::invalid("has {} hosts; this is about one", hosts);
  if (gpus < 2) return topology::invalid("has {} GPU{}", gpus, gpus == 1 ? "" : "s");
  const topology::Graph* const all[] = {&graph};
  return with_graphs(links_within(graph), all);
}

DeviceChooser::DeviceChooser(const planner::DeviceMachine& machine, planner::Request shaped)
    : machine_(machine), shaped_(std::move(shaped)) {
  planner::SimulateOptions options;
  options.collective = shaped_.shape.collective;
  options.contract = shaped_.contract;
  options.slots = machine.slots;
  options.most_events = kMostEvents;
  std::vector<cuda::RingSet> sets = machine.flagged;
  sets.push_back({SlotFormat::kSimple, machine.lanes, machine.slot_bytes});
  for (const cuda::RingSet& set : sets) {
    options.slot_bytes = cuda::data_in_slot(set.format, set.slot_bytes);
    options.channels = options.most_lanes = set.lanes;
    simulators_[set.format] =
        std::make_unique<planner::Simulator>(machine.graph->graph, machine.graph->devices, options);
  }
}

Result<DeviceChooser> DeviceChooser::create(const planner::DeviceMachine& machine,
                                            const ChoiceOf& what) {
  DeviceChooser chooser(machine,
                        planner::device_request(what.collective, 0, what.contract, machine));
  TUTTI_TRY(chooser.eager_limit_, planner::eager_limit_bytes(chooser.shaped_, machine));
  chooser.shaped_.mapped = what.mapped;
  return chooser;
}

Result<TimedChoice> DeviceChooser::choose(std::size_t bytes) {
  planner::Request request = shaped_;
  request.bytes = bytes;
  TUTTI_TRY(const Taken taken, first_plan(request, machine_));
  estimate_us_ = taken.candidate.microseconds;
  if (bytes > eager_limit_) {
    planner::Simulator& with = simulator(taken.format);
    return TimedChoice{false,
                       taken.format,
                       taken.candidate.algorithm->name,
                       with.microseconds(*taken.plan, protocol_of(taken.format), bytes),
                       taken.candidate.lanes,
                       taken.orders};
  }
  const Algorithm* one_shot = find_algorithm(Collective::kAllReduce, kOneShot);
  TUTTI_TRY(const auto sample,
            simulator(SlotFormat::kSimple).run(*one_shot, protocol_of(SlotFormat::kPacked), bytes));
  return TimedChoice{true, SlotFormat::kPacked, kOneShot, sample.microseconds};
}

Result<std::vector<DeviceChoice>> compare_choices(const planner::DeviceMachine& machine,
                                                  std::span<const std::size_t> sizes,
                                                  const ChoiceOf& what) {
  TUTTI_TRY(DeviceChooser chooser, DeviceChooser::create(machine, what));
  std::vector<DeviceChoice> choices;
  for (const std::size_t bytes : sizes) {
    DeviceChoice& choice = choices.emplace_back();
    choice.bytes = bytes;
    TUTTI_TRY(choice.chosen, chooser.choose(bytes));
    choice.estimate_us = chooser.estimate_us();
    const bool fits_one_shot = what.collective == Collective::kAllReduce &&
                               machine.device_of.size() <= cuda::kMostSources &&
                               bytes <= machine.eager_bytes;
    const auto compete = [&](const TimedChoice& one) {
      if (choice.best.algorithm.empty() || one.us < choice.best.us) choice.best = one;
    };
    const auto simulate = [&](const Algorithm& algorithm, bool eager, SlotFormat format) -> Status {
      planner::Simulator& with = chooser.simulator(eager ? SlotFormat::kSimple : format);
      TUTTI_TRY(const auto sample, with.run(algorithm, protocol_of(format), bytes));
      if (!exec::unsuited(build(algorithm, sample.shape)).empty()) return ok();
      compete({eager, format, algorithm.name, sample.microseconds, sample.lanes, sample.orders});
      return ok();
    };
    for (const Algorithm* algorithm : chooser.simulator(SlotFormat::kSimple).candidates()) {
      TUTTI_RETURN_IF_ERROR(simulate(*algorithm, false, SlotFormat::kSimple));
      if (fits_one_shot && algorithm->name == kOneShot)
        TUTTI_RETURN_IF_ERROR(simulate(*algorithm, true, SlotFormat::kPacked));
    }
    for (const cuda::RingSet& set : machine.flagged) {
      if (bytes > planner::kKernelShape.most_flagged_bytes) break;
      for (const Algorithm* algorithm : chooser.simulator(set.format).candidates())
        TUTTI_RETURN_IF_ERROR(simulate(*algorithm, false, set.format));
    }
    if (choice.chosen.us <= choice.best.us) choice.best = choice.chosen;
  }
  return choices;
}

}  // namespace tutti::tools
