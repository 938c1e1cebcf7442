// What communicators of devices choose where the graph of the host is known (cuda/comm/select.h):
// on all models and files, without any device.
#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "cuda/comm/graph_costs.h"
#include "planner/machine_cost.h"
#include "support/catch.h"
#include "support/topology/topology_files.h"
#include "tools/topo/device_choices.h"
#include "topology/capture/machines.h"
#include "topology/join/repeat.h"
#include "topology/models/model.h"

namespace tutti {
namespace {

using planner::DeviceLink;
using planner::DeviceMachine;

constexpr std::size_t kSizes[] = {8,
                                  std::size_t{64} << 10,
                                  std::size_t{1} << 20,
                                  std::size_t{4} << 20,
                                  std::size_t{16} << 20,
                                  std::size_t{1} << 30};

/// Hosts that are alike.
struct Hosts {
  std::string name;
  int count;
  DeviceMachine machine;
  topology::Graph graph;  // All together.
};

/// Graphs of one host with at least two GPUs.
std::vector<std::pair<std::string, topology::Graph>> graphs(bool files) {
  std::vector<std::string> names;
  for (const topology::Model* model : topology::models()) names.emplace_back(model->name);
  for (const auto& file : test::kMachineFiles) {
    if (files) names.push_back(test::machine_path(file.name));
  }
  std::vector<std::pair<std::string, topology::Graph>> found;
  for (const std::string& name : names) {
    auto read = topology::load_machine(name);
    REQUIRE(read);
    topology::Graph graph = std::move(read->graph);
    if (graph.all(topology::NodeKind::kHost).size() != 1 ||
        graph.all(topology::NodeKind::kGpu).size() < 2)
      continue;
    found.emplace_back(name, std::move(graph));
  }
  return found;
}

/// So many of each of whose links the graph knows all; of more than one only models, with at most
/// 32 ranks, so that it does not take long.
std::vector<Hosts> hosts(int count) {
  std::vector<Hosts> found;
  for (const auto& [name, graph] : graphs(count == 1)) {
    const std::vector<const topology::Graph*> all(static_cast<std::size_t>(count), &graph);
    if (count > 1 && all.size() * graph.all(topology::NodeKind::kGpu).size() > 32) continue;
    if (count > 1 && name == "hgx-h200") continue;  // As hgx-h100.
    auto machine = count == 1 ? tools::device_machine(graph)
                              : tools::with_graphs(tools::device_machine(all), all);
    INFO(name << ": " << (machine ? "" : machine.error().what));
    // A table of classes of links does not say what they carry.
    if (!machine && name.find("data/topology") != std::string::npos) continue;
    REQUIRE(machine);
    // As the simulator has it of Amazon's network.
    const bool efa = name == "p4d" || name == "p5";
    machine->hosts.cost.link.latency_us += efa ? 20 : 0;
    topology::Graph joined = machine->graph->graph;
    found.push_back({fmt::format("{}:{}", name.substr(name.rfind('/') + 1), count), count,
                     *std::move(machine), std::move(joined)});
  }
  return found;
}

planner::Request request_for(const DeviceMachine& machine, Collective collective,
                             Contract contract) {
  return planner::device_request(collective, 0, contract, machine);
}

/// What is chosen may take that much longer.
void compare_with_simulator(const std::vector<Hosts>& machines, double most,
                            std::span<const std::size_t> sizes = kSizes,
                            const tools::ChoiceOf& what = {}) {
  std::string table;
  bool far = false;
  for (const Hosts& host : machines) {
    const auto choices = tools::compare_choices(host.machine, sizes, what);
    REQUIRE(choices);
    for (const tools::DeviceChoice& one : *choices) {
      far = far || one.ratio() > most;
      table += fmt::format("{:24} {:>11} {:20} {:20} {:.2f}   estimate {:.1f}, simulated {:.1f}\n",
                           host.name, one.bytes, one.chosen.algorithm, one.best.algorithm,
                           one.ratio(), one.estimate_us, one.chosen.us);
    }
  }
  INFO("machine | bytes | the runtime's choice | the simulator's choice | ratio\n" << table);
  CHECK_FALSE(far);
}

DeviceMachine machine_of(std::string_view name) {
  const auto graph = topology::model(name);
  REQUIRE(graph);
  const auto machine = tools::device_machine(*graph);
  REQUIRE(machine);
  return *machine;
}

constexpr double kMost = 1.05, kMostBetweenHosts = 1.2;
/// For scans on 16 ranks: long plans are estimated by their first steps, and in a scan the last
/// ranks wait for longest at first. Half as many lanes as would be best are taken, for 4 to 16 MiB.
constexpr double kMostOfScans = 1.3;
constexpr std::size_t kLargeSizes[] = {std::size_t{64} << 10, std::size_t{4} << 20,
                                       std::size_t{1} << 30};

/// What data pass from one rank to another, by the names of links.
std::string way(const planner::GraphCosts& costs, std::size_t from, std::size_t to) {
  std::map<std::string, double> links;
  for (const plan::Use& use : costs.uses(from, to)) {
    const topology::Link& link = costs.graph.links[use.resource / 2];
    const auto& [a, b] =
        use.resource % 2 == 0 ? std::pair(link.a, link.b) : std::pair(link.b, link.a);
    links[costs.graph[a].name + " " + costs.graph[b].name] += use.share;
  }
  std::string text;
  for (const auto& [name, share] : links) text += fmt::format("{} {:.3f}\n", name, share);
  return text;
}

TEST_CASE("a graph of all hosts says the same as each host's own, and links between two hosts") {
  const auto box = topology::model("hgx-h100");
  REQUIRE(box);
  const topology::Graph bare = topology::without_network(*box);
  const std::vector<const topology::Graph*> hosts(3, &bare);
  auto together = topology::joined(hosts, "rail");
  REQUIRE(together);
  const DeviceMachine machine = tools::device_machine(hosts);
  const std::vector<const topology::Graph*> boxes(3, &*box);
  const auto apart = tools::with_graphs(machine, boxes);
  REQUIRE(apart);
  std::vector<std::string> buses;
  for (int host = 0; host < 3; ++host) {
    for (const auto gpu : bare.all(topology::NodeKind::kGpu)) buses.push_back(bare[gpu].bus);
  }
  const auto costs_of = [&](const topology::Graph& graph) {
    const std::vector graphs(3, std::make_shared<const topology::Graph>(graph));
    auto costs = planner::graph_costs(graphs, machine, buses, graph.all(topology::NodeKind::kHost));
    REQUIRE(costs);
    return *std::move(costs);
  };
  const auto whole = costs_of(together->graph);
  CHECK(whole.between_hosts == "as it says");
  for (std::size_t from = 0; from < 24; ++from) {
    for (std::size_t to = 0; to < 24; to += 3)
      CHECK(way(whole, from, to) == way(*apart->graph, from, to));
  }
  topology::Graph slow = together->graph;
  const auto nic = [&](const char* host) {
    for (const auto node : slow.all(topology::NodeKind::kNic)) {
      if (slow[slow[node].host].name == host) return node;
    }
    return topology::NodeId{};
  };
  slow.join(topology::LinkKind::kNetwork, nic("host0"), nic("host2"),
            {0.5, topology::Origin::kMeasured});
  const auto with_link = costs_of(slow);
  const std::string name = slow[nic("host0")].name + " " + slow[nic("host2")].name + " 1.000";
  INFO(way(with_link, 3, 19));
  CHECK(way(with_link, 3, 19).find(name) != std::string::npos);
  CHECK(way(with_link, 3, 19).find("rail") == std::string::npos);
  CHECK(way(with_link, 3, 11) == way(whole, 3, 11));
}

TEST_CASE("what is chosen takes hardly longer than what the simulator would choose") {
  const auto machines = hosts(1);
  CHECK(machines.size() >= 11);
  compare_with_simulator(machines, kMost);
}

TEST_CASE("so is what is chosen of all collectives, under both contracts, on all models") {
  auto machines = hosts(1);
  std::erase_if(machines, [](const Hosts& one) {
    const auto models = topology::models();
    return std::ranges::none_of(models, [&](const topology::Model* model) {
      return one.name == fmt::format("{}:1", model->name);
    });
  });
  CHECK(machines.size() >= 9);
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
      if (contract == Contract::kRelaxed && !reduces(collective)) continue;  // As the other.
      INFO(to_string(collective));
      compare_with_simulator(machines, is_scan(collective) ? kMostOfScans : kMost, kSizes,
                             {collective, contract});
    }
  }
}

TEST_CASE("to give up on slow plans early changes no choice") {
  for (const topology::Model* model : topology::models()) {
    const auto graph = topology::model(model->name);
    REQUIRE(graph);
    const auto machine = tools::device_machine(*graph);
    if (!machine) continue;  // It has no GPUs, or several hosts.
    for (int i = 0; i < 2 * kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i / 2);
      const auto contract = i % 2 == 0 ? Contract::kDeterministic : Contract::kRelaxed;
      if (contract == Contract::kRelaxed && !reduces(collective)) continue;  // As the other.
      planner::Request request = request_for(*machine, collective, contract);
      for (const std::size_t bytes : kSizes) {
        INFO(model->name << ", " << to_string(collective) << ", " << bytes);
        request.bytes = bytes;
        const auto plans = planner::device_plans(request, *machine);
        const auto all = planner::device_candidates(request, *machine);  // Each with its own time.
        REQUIRE(plans);
        REQUIRE(all);
        const planner::Candidate &chosen = plans->front(), &best = all->front();
        REQUIRE(best.refused.empty());
        CHECK(chosen.name() == best.name());
        CHECK(chosen.lanes == best.lanes);
        CHECK(chosen.microseconds == best.microseconds);
        const auto made = planner::device_recipe(chosen, request, *machine),
                   same = planner::device_recipe(best, request, *machine);
        CHECK(made.format == same.format);
        CHECK(made.recipe.orders == same.recipe.orders);
      }
    }
  }
}

TEST_CASE("a plan takes all lanes that it may have, also if they are no power of two") {
  DeviceMachine machine = machine_of("hgx-h100");
  std::map<std::uint32_t, double> us;
  for (const std::uint32_t lanes : {2U, 3U}) {
    machine.lanes = lanes;
    auto request = request_for(machine, Collective::kAllGather, Contract::kDeterministic);
    request.bytes = std::size_t{1} << 30;
    const auto found = planner::device_candidates(request, machine);
    REQUIRE(found);
    const auto ring = std::ranges::find_if(
        *found, [](const planner::Candidate& one) { return one.name() == "ring"; });
    REQUIRE(ring != found->end());
    CHECK(ring->lanes == lanes);
    us[lanes] = ring->microseconds;
  }
  CHECK(us[3] < 0.8 * us[2]);
}

TEST_CASE("what is chosen for several hosts takes hardly longer than the simulator's choice") {
  for (const int count : {2, 4}) {
    const auto machines = hosts(count);
    CHECK(machines.size() >= 9);
    compare_with_simulator(machines, kMostBetweenHosts, kLargeSizes);
  }
}

TEST_CASE("rings stand on the orders that a machine's links suggest") {
  const DeviceMachine machine = machine_of("dgx1-v100");
  const std::pair<Collective, Contract> kinds[] = {
      {Collective::kAllGather, Contract::kDeterministic},
      {Collective::kReduceScatter, Contract::kRelaxed},
      {Collective::kAllReduce, Contract::kRelaxed}};
  for (const auto& [collective, contract] : kinds) {
    INFO(to_string(collective));
    auto request = request_for(machine, collective, contract);
    CHECK(request.orders.size() > 1);
    request.bytes = std::size_t{4} << 20;
    planner::Candidate ring;
    ring.algorithm = find_algorithm(collective, "ring");
    const planner::Recipe recipe = planner::device_recipe(ring, request, machine).recipe;
    REQUIRE(recipe.orders.size() > 1);
    const auto made = planner::prepare(recipe);
    REQUIRE(made);
    CHECK((*made)->plan.name.starts_with("ring+order"));
    CHECK((*made)->plan.ranks[0].lanes.size() <= machine.lanes);
    const auto choices = tools::compare_choices(machine, kLargeSizes,
                                                {.collective = collective, .contract = contract});
    REQUIRE(choices);
    for (const tools::DeviceChoice& one : *choices) CHECK(one.ratio() <= kMostBetweenHosts);
  }
  // Where sums have one order, lanes keep it.
  CHECK(request_for(machine, Collective::kAllReduce, Contract::kDeterministic).orders.empty());
}

/// Two hosts that differ: eight GPUs each, but of another make and with other NICs.
Hosts odd_hosts() {
  static const std::vector<topology::Graph> graphs = [] {
    std::vector<topology::Graph> found;
    for (const char* name : {"pcie-8", "dgx-a100"}) {
      auto graph = topology::model(name);
      REQUIRE(graph);
      found.push_back(*std::move(graph));
    }
    return found;
  }();
  const topology::Graph* const both[] = {&graphs[0], &graphs[1]};
  auto machine = tools::with_graphs(tools::device_machine(both), both);
  REQUIRE(machine);
  return {"pcie-8, dgx-a100", 2, *machine, machine->graph->graph};
}

TEST_CASE("what is chosen for hosts that differ takes hardly longer than the simulator's choice") {
  const Hosts hosts = odd_hosts();
  CHECK(hosts.machine.graph->between_hosts == "2 to 8 NICs a host on one network");
  compare_with_simulator({hosts}, kMostBetweenHosts, kLargeSizes);
}

/// Microseconds for a megabyte alone.
double slowest_us(const std::vector<plan::Use>& uses,
                  const std::vector<plan::Resource>& resources) {
  double us = 0;
  for (const plan::Use& use : uses)
    us = std::max(us, 1e3 * use.share / resources[use.resource].gigabytes_per_second);
  return us;
}

TEST_CASE("what goes between hosts passes what the simulator takes") {
  auto machines = hosts(2);
  // There the simulator also leaves by NICs of the other socket, as that is fewer links.
  std::erase_if(machines, [](const Hosts& one) { return one.name == "pcie-8:2"; });
  machines.push_back(odd_hosts());
  for (const Hosts& one : machines) {
    const planner::GraphCosts& costs = *one.machine.graph;
    planner::MachineCost simulated(one.graph, costs.devices);
    const plan::CostModel model = simulated.model(*planner::find_protocol("simple"));
    const auto ranks = static_cast<int>(costs.devices.size());
    for (int from = 0; from < ranks; ++from) {
      for (int to = 0; to < ranks; ++to) {
        if (from == to) continue;
        INFO(one.name << ": " << from << " to " << to);
        const auto uses = costs.uses(static_cast<std::size_t>(from), static_cast<std::size_t>(to));
        CHECK(slowest_us(uses, costs.resources) ==
              Approx(slowest_us(model.link(Rank{from}, Rank{to}).uses, model.resources)));
      }
    }
  }
}

TEST_CASE("without GPUDirect what goes between hosts passes the memory next to the device") {
  const auto graph = topology::model("pcie-8");
  REQUIRE(graph);
  const topology::Graph* const both[] = {&*graph, &*graph};
  DeviceMachine machine = tools::device_machine(both);
  const auto to_memory = [&] {  // Shares of what enters a NUMA node of the first host.
    const auto made = tools::with_graphs(machine, both);
    REQUIRE(made);
    const topology::Graph& all = made->graph->graph;
    double share = 0;
    for (const plan::Use& use : made->graph->uses(0, 8)) {
      const topology::Link& link = all.links[use.resource / 2];
      const topology::NodeId into = use.resource % 2 == 0 ? link.b : link.a;
      share += all[into].name == "host0/numa0" ? use.share : 0;
    }
    return share;
  };
  CHECK(to_memory() == 0);
  machine.gpudirect = false;
  CHECK(to_memory() == 2);
}

TEST_CASE("hosts that RDMA does not join, or whose NICs are not known, have the network's figure") {
  auto graph = topology::model("hgx-h100");
  REQUIRE(graph);
  auto unknown = *graph;
  for (topology::Link& link : unknown.links) {
    if (is_network(link.kind)) link.forward = link.backward = {};
  }
  for (const topology::Graph* host : {&std::as_const(*graph), &std::as_const(unknown)}) {
    const topology::Graph* const both[] = {host, host};
    DeviceMachine machine = tools::device_machine(both);
    machine.by_nics = host == &unknown;
    machine.hosts.cost = {.link = {15, 1.25}, .message_us = 3};
    const auto made = tools::with_graphs(machine, both);
    REQUIRE(made);
    CHECK(made->graph->between_hosts == "1.25 GB/s a host");
    // All ranks of a host share it, in and out.
    for (std::size_t rank = 0; rank < 8; ++rank) {
      CHECK(slowest_us(made->graph->uses(rank, 8), made->graph->resources) == Approx(800));
      double most = 0;
      for (const plan::Use& use : made->graph->uses(rank, 15))
        most = std::max(most, made->graph->resources[use.resource].message_us);
      CHECK(most == 3);
    }
  }
}

TEST_CASE("ranks of a host with slower NICs have less to do") {
  const auto graph = topology::model("hgx-h100");
  REQUIRE(graph);
  topology::Graph slow = *graph;
  for (topology::Link& link : slow.links) {
    if (!is_network(link.kind)) continue;
    link.forward.value /= 2;
    link.backward.value /= 2;
  }
  const topology::Graph* const all[] = {&*graph, &*graph, &slow};
  const auto machine = tools::with_graphs(tools::device_machine(all), all);
  REQUIRE(machine);
  CHECK(machine->graph->between_hosts == "8 rails");
  const auto shape =
      planner::device_shape(Collective::kAllReduce, 0, Contract::kDeterministic, *machine);
  REQUIRE(shape.weights.size() == 24);
  CHECK(shape.weights[0] > shape.weights[23]);
  CHECK(shape.groups == plan::GroupSizes{8});
}

TEST_CASE("the graphs of many hosts are joined without looking at all pairs") {
  const auto graph = topology::model("hgx-h100");
  REQUIRE(graph);
  const std::vector<const topology::Graph*> all(128, &*graph);
  const auto machine = tools::with_graphs(tools::device_machine(all), all);
  REQUIRE(machine);
  const planner::GraphCosts& costs = *machine->graph;
  CHECK(costs.devices.size() == 1024);
  CHECK(costs.between_hosts == "8 rails");
  CHECK(costs.local.size() == 1 + 8 * 7);  // What one host has, as all are alike.
  const auto name = [&](topology::NodeId node) { return costs.graph[node].name; };
  CHECK(name(costs.devices[1023]) == "host127/gpu7");
  // Rank by rank on one rail: over a leaf for 32 hosts, or over two and what is above.
  const auto spines = static_cast<std::size_t>(std::ranges::count_if(
      costs.graph.nodes, [](const auto& node) { return node.name.starts_with("spine"); }));
  CHECK(spines == 16);
  CHECK(costs.uses(0, 1016).size() == costs.uses(0, 8).size() + 2 * spines);
}

TEST_CASE("small messages are eager as far as no plan is faster") {
  const auto limit = [](std::string_view name) -> std::size_t {
    const auto machine = machine_of(name);
    const auto found = planner::eager_limit_bytes(
        request_for(machine, Collective::kAllReduce, Contract::kDeterministic), machine);
    REQUIRE(found);
    return *found;
  };
  CHECK(limit("hgx-h100") == std::size_t{8} << 10);  // Beyond, plans over lines.
  // Each rank sends all it has to each other one, past sockets that all share.
  CHECK(limit("pcie-8") >= 1024);
  CHECK(limit("pcie-8") < std::size_t{64} << 10);
  CHECK(limit("dgx2") == 0);  // More ranks than a step has sources.
}

TEST_CASE("who forces the eager path gets it for all that it takes") {
  auto machine = machine_of("pcie-8");
  machine.overrides = "all_reduce=packet";
  const auto found = planner::eager_limit_bytes(
      request_for(machine, Collective::kAllReduce, Contract::kDeterministic), machine);
  REQUIRE(found);
  CHECK(*found == machine.eager_bytes);
}

void check_bounds(const std::vector<Hosts>& machines, std::span<const std::size_t> sizes) {
  for (const Hosts& host : machines) {
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
        planner::Request request = request_for(host.machine, collective, contract);
        for (const std::size_t bytes : sizes) {
          request.bytes = bytes;
          const planner::DeviceBound bound = planner::device_bound(request, host.machine);
          CHECK(bound.us > 0);
          CHECK_FALSE(bound.words.empty());
          const auto all = planner::device_candidates(request, host.machine);
          REQUIRE(all);
          for (const planner::Candidate& one : *all) {
            if (one.microseconds <= 0) continue;
            INFO(host.name << ", " << to_string(collective) << " of " << bytes << " bytes by "
                           << one.algorithm->name);
            CHECK(one.microseconds >= bound.us * (1 - 1e-6));
          }
        }
      }
    }
  }
}

TEST_CASE("no estimate is below what the machine allows, nor below what is said of it") {
  check_bounds(hosts(1), kSizes);
}

TEST_CASE("no estimate for two hosts is below what they allow") {
  const std::span longest = std::span(kSizes).last(1);
  check_bounds(hosts(2), longest);
  check_bounds({odd_hosts()}, longest);
}

}  // namespace
}  // namespace tutti
