// Ranks of several hosts: on which host each is, what they share, and which plans follow from that.
#include <algorithm>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "comm/plan_selector.h"
#include "planner/explain.h"
#include "planner/select.h"
#include "planner/weights.h"
#include "support/catch.h"
#include "topology/graph/text.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

/// A process on a machine and in one of its networks, with CPUs 0 to cpus - 1.
Peer peer_of(std::uint64_t machine, std::uint64_t network, int cpus = 4) {
  Peer peer = this_process();
  peer.host[0] = machine;
  peer.host[1] = machine * 1000 + network;
  peer.process[0] = machine * 1000 + network;
  peer.quota = 0;
  peer.cpus = {};
  peer.cpus[0] = (std::uint64_t{1} << cpus) - 1;
  return peer;
}

planner::PlannerInputs inputs_of(std::vector<int> hosts) {
  planner::PlannerInputs inputs;
  inputs.hosts = {std::move(hosts), tcp_transport.network};
  inputs.usable_cpus = 2 * (1 + *std::max_element(inputs.hosts.of.begin(),  //
                                                  inputs.hosts.of.end()));
  return inputs;
}

planner::Request request_of(Collective collective, int ranks, int group, std::size_t bytes) {
  planner::Request request;
  request.shape = {collective, ranks, 0};
  request.shape.groups.sizes = {group};
  request.bytes = bytes;
  return request;
}

std::vector<int> groups_for(const std::vector<int>& hosts, std::vector<int> set = {}) {
  Settings settings;
  settings.groups = std::move(set);
  const auto ranks = static_cast<int>(hosts.size());
  const PlanSelector selector(settings, std::make_shared<const planner::PlanFiles>(), ranks, 4,
                              std::make_shared<const Tuning>(), "tcp",
                              {hosts, tcp_transport.network});
  exec::Call call;
  call.count = 1;
  return selector.request_for(call, exec::Access::kSlots).shape.groups.sizes;
}

/// Ranks on hosts h0, h1, ... with a NIC each, of which that of the last carries a fifth.
HostTopology topology_of(int hosts) {
  std::string text = "tutti topology 1\nplane net\n";
  for (int i = 0; i < hosts; ++i)
    text += fmt::format(
        "host h{0} .hostname=h{0}\nnuma h{0}/n host=h{0}\nnic h{0}/nic host=h{0}\n"
        "pcie h{0}/n h{0}/nic forward=100:table backward=100:table\n"
        "port h{0}/nic net forward={1}:measured backward={1}:measured\n",
        i, i + 1 == hosts ? 2 : 10);
  auto graph = topology::parse_graph(text, "test");
  REQUIRE(graph);
  return {std::make_shared<const topology::Graph>(*std::move(graph)), "topology of test", ""};
}

/// What a communicator makes of settings, a table and that topology.
Settings settings_with_topology(const std::vector<int>& hosts, const Settings& settings,
                                planner::TuningTable table = {}) {
  const auto ranks = static_cast<int>(hosts.size());
  const int count = 1 + *std::max_element(hosts.begin(), hosts.end());
  TunedHosts tuned{5, {}};
  for (int host = 0; host < count; ++host) tuned.names.push_back(fmt::format("h{}", host));
  Tuning tuning;
  if (!table.rates.empty()) {
    table.key = {5, TUTTI_VERSION, "tcp", ranks, 4, hosts};
    tuning.tables.push_back(std::move(table));
  }
  PlanSelector selector(settings, std::make_shared<const planner::PlanFiles>(), ranks, 4,
                        std::make_shared<const Tuning>(std::move(tuning)), "tcp",
                        {hosts, tcp_transport.network}, tuned);
  std::vector<Peer> peers;
  for (const int host : hosts) {
    Peer& peer = peers.emplace_back(peer_of(static_cast<std::uint64_t>(host) + 1, 1));
    std::memset(peer.host_name, 0, sizeof(peer.host_name));
    fmt::format("h{}", host).copy(peer.host_name, sizeof(peer.host_name) - 1);
  }
  selector.set(topology_of(count), peers);
  CHECK(selector.topology().why_not == "");
  return selector.settings();
}

}  // namespace

TEST_CASE("a transport is the first that joins all, one that is forced, or none that is excluded") {
  const std::vector<Peer> peers{peer_of(1, 0), peer_of(2, 0)};
  const auto chosen = [&peers](std::string_view rule) -> std::string {
    const auto transport = choose_transport(peers, rule);
    return transport ? std::string((*transport)->name) : transport.error().to_string();
  };
  CHECK(chosen("tcp") == "tcp");
  CHECK(chosen("^verbs") == "tcp");
  CHECK(chosen("^no_such_thing,verbs") == "tcp");
  CHECK_THAT(chosen("vebs"), Catch::Contains("no transport is called 'vebs'"));
  CHECK(chosen("^verbs,tcp") != "tcp");
  CHECK_THAT(chosen("^in_process,shared_memory,verbs,tcp,ucx"),
             Catch::Contains("no transport is left by '^in_process"));
}

TEST_CASE("What the user or a table says goes before a topology") {
  using List = std::vector<int>;
  const List four{0, 1, 2, 3};
  CHECK(settings_with_topology(four, {}).weights.back() == 0);
  Settings settings;
  settings.weights = {1, 2, 3, 4};
  CHECK(settings_with_topology(four, settings).weights == List{1, 2, 3, 4});
  planner::TuningTable table;  // It saw another host that was slow.
  table.network.link = {20, 10};
  table.rates = {{"h0", 2}, {"h1", 10}, {"h2", 10}, {"h3", 10}};
  const List weights = settings_with_topology(four, {}, table).weights;
  REQUIRE(weights.size() == 4);
  CHECK(weights.front() == 0);
  CHECK(weights.back() > 0);
}

TEST_CASE("A topology leaves groups as they are where hosts are none") {
  for (const std::vector<int>& hosts : {std::vector{0, 1, 1}, std::vector{0, 1, 0, 1},
                                        std::vector{0, 0, 1, 1}, std::vector{0, 0, 1}})
    CHECK(settings_with_topology(hosts, {}).groups == groups_for(hosts));
  Settings settings;
  settings.groups = {4};
  CHECK(settings_with_topology({0, 0, 1, 1}, settings).groups == settings.groups);
}

TEST_CASE("Hosts are counted in the order of ranks") {
  const std::vector<Peer> two{peer_of(7, 1), peer_of(7, 1), peer_of(5, 1), peer_of(7, 1)};
  CHECK(hosts_of(two, tcp_transport) == std::vector<int>{0, 0, 1, 0});
  CHECK(hosts_of(two, shared_memory_transport).empty());
  // A network between ranks of one host is what somebody wants to see.
  const std::vector<Peer> one{peer_of(7, 1), peer_of(7, 1), peer_of(7, 1)};
  CHECK(hosts_of(one, tcp_transport) == std::vector<int>{0, 1, 2});
}

TEST_CASE("CPUs are shared on a machine, whatever networks its ranks see") {
  CHECK(shared_cpus(std::vector<Peer>{peer_of(7, 1), peer_of(7, 2)}) == 4);
  CHECK(shared_cpus(std::vector<Peer>{peer_of(7, 1, 2), peer_of(7, 2, 6)}) == 6);
  CHECK(shared_cpus(std::vector<Peer>{peer_of(7, 1), peer_of(5, 1, 2), peer_of(7, 2)}) == 6);
}

TEST_CASE("Ranks of a host are a group where that says something") {
  using List = std::vector<int>;
  CHECK(groups_for({0, 0, 1, 1}) == List{2});
  CHECK(groups_for({0, 0, 0, 1, 1, 1, 2}) == List{3});  // The last one may be cut off.
  CHECK(groups_for({0, 1, 2, 3}).empty());              // Nobody is near.
  CHECK(groups_for({0, 0, 1}) == List{2});
  CHECK(groups_for({0, 1, 1}).empty());     // The first one is cut off.
  CHECK(groups_for({0, 1, 0, 1}).empty());  // Not in a row.
  CHECK(groups_for({0, 0, 1, 1}, {4}) == List{4});
}

TEST_CASE("Between hosts the plan that crosses less is chosen for long messages") {
  for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
    for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{16} << 20}) {
      INFO(to_string(collective) << " of " << bytes << " bytes");
      const planner::Request request = request_of(collective, 8, 2, bytes);
      const auto between = inputs_of({0, 0, 1, 1, 2, 2, 3, 3});
      const auto list = planner::candidates(request, between);
      REQUIRE(list);
      CHECK(list->front().name() == "hierarchical");
      CHECK(list->front().evidence == planner::Evidence::kEstimated);
      // And not because of its name: one host has no use for it.
      const auto alone = planner::candidates(request, planner::PlannerInputs{});
      REQUIRE(alone);
      CHECK(alone->front().name() != "hierarchical");
    }
  }
}

TEST_CASE("Where blocks differ in size, ranks choose alike whatever they see of them") {
  const auto between = inputs_of({0, 0, 1, 1, 2, 2, 3, 3});
  for (int i = 0; i < kCollectiveCount; ++i) {
    std::string_view first;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1} << 16, std::size_t{16} << 20}) {
      planner::Request request = request_of(static_cast<Collective>(i), 8, 2, bytes);
      request.vector_variant = true;
      const auto plans = planner::contenders(request, between);
      if (!plans) continue;  // This collective has no such calls.
      INFO(to_string(request.shape.collective) << " of " << bytes << " bytes");
      REQUIRE(plans->size() == 1);
      CHECK(plans->front().evidence == planner::Evidence::kRule);
      if (first.empty()) first = plans->front().name();
      CHECK(plans->front().name() == first);
    }
  }
}

TEST_CASE("What a network costs is in the estimates") {
  const planner::Request request = request_of(Collective::kAllReduce, 4, 2, 1 << 20);
  auto inputs = inputs_of({0, 0, 1, 1});
  const auto us = [&] {
    return planner::estimate_us(*find_algorithm(Collective::kAllReduce, "two_shot"), request,
                                inputs)
        .value();
  };
  const double before = us();
  inputs.hosts.cost.link.latency_us += 100;
  const double farther = us();
  CHECK(farther > before + 199);  // Two hops.
  inputs.hosts.cost.link.gigabytes_per_second /= 2;
  CHECK(us() > farther + 500);  // A host sends at least 1 MiB, which took about 900 us.
  inputs.hosts = {};
  CHECK(us() < before / 2);
}

TEST_CASE("The bound of a call between hosts is the network's, and nothing beats it") {
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{4} << 20}) {
      planner::Request request = request_of(static_cast<Collective>(i), 8, 2, bytes);
      INFO(to_string(request.shape.collective) << " of " << bytes << " bytes");
      const auto found = planner::explain(request, inputs_of({0, 0, 1, 1, 2, 2, 3, 3}));
      REQUIRE(found);
      CHECK_THAT(found->bound_words, Catch::Contains("into a host or out of it"));
      for (const auto& way : found->ways) {
        INFO(way.candidate.name());
        if (way.candidate.refused.empty()) CHECK(way.candidate.microseconds > found->bound_us);
      }
    }
  }
}

TEST_CASE("Hosts that carry less own less, each of their ranks alike") {
  using List = std::vector<int>;
  const auto weights = [](List of, const std::vector<double>& rates) {
    planner::Hosts hosts{std::move(of), {}};
    for (const double rate : rates) hosts.rates.push_back({"name", rate});
    return planner::weights_for(hosts);
  };
  CHECK(weights({0, 1, 2, 3}, {1, 1, 1, 0.5}) == List{1, 1, 1, 0});
  CHECK(weights({0, 0, 1, 1, 2, 2}, {1, 0.5, 1}) == List{1, 1, 0, 0, 1, 1});
  CHECK(weights({0, 1, 0, 2, 1, 2}, {1, 0.5, 1}) == List{1, 0, 1, 1, 0, 1});
  CHECK(weights({0, 1, 2, 3}, {}).empty());            // Nothing was measured.
  CHECK(weights({0, 1, 2, 3}, {2, 2, 2, 2}).empty());  // All are alike.
  CHECK(weights({0, 1}, {1, 0.5}).empty());            // Both carry the same.
  CHECK(weights({0, 0, 1, 2}, {1, 1, 0.5}).empty());   // Ranks don't carry what hosts do.
  CHECK(weights({}, {}).empty());
}

TEST_CASE("A host that carries less holds up what estimates and bounds say, and weights help") {
  planner::Request request = request_of(Collective::kAllReduce, 4, 1, 16 << 20);
  request.shape.groups = {};
  auto inputs = inputs_of({0, 1, 2, 3});
  const auto us = [&](std::string_view name) {
    return planner::estimate_us(*find_algorithm(Collective::kAllReduce, name), request, inputs)
        .value();
  };
  const auto bound_us = [&] { return planner::explain(request, inputs)->bound_us; };
  const double alike = us("two_shot"), alike_bound = bound_us();
  const double rate = inputs.hosts.cost.link.gigabytes_per_second;
  for (const double carried : {rate, rate, rate, rate / 4})
    inputs.hosts.rates.push_back({"host", carried});
  request.shape.weights = planner::weights_for(inputs.hosts);
  // For 16 MiB each host sends and takes 24, the last one at a quarter of the rate. If the last one
  // owns nothing, it sends and takes 16.
  CHECK(us("two_shot") > 3 * alike);
  CHECK(us("weighted") < us("two_shot") / 1.4);
  CHECK(bound_us() == Approx(alike_bound * 4 / 1.5).epsilon(0.01));
  CHECK(us("weighted") > bound_us());
  Settings settings;
  settings.weights = request.shape.weights;
  inputs.most_lanes = *planner::lanes_needed(4, settings, inputs);
  CHECK(planner::candidates(request, inputs)->front().name() == "weighted");
}

TEST_CASE("Packets go between hosts as long as they take no longer than a hop") {
  for (int i = 0; i < kCollectiveCount; ++i) {
    planner::Request request = request_of(static_cast<Collective>(i), 8, 2, 0);
    const auto limit = [&](std::vector<int> hosts) {
      const auto bytes = planner::eager_limit_bytes(request, inputs_of(std::move(hosts)));
      REQUIRE(bytes);
      return *bytes;
    };
    const std::size_t four = limit({0, 0, 1, 1, 2, 2, 3, 3});
    CHECK(four == 1500);  // 15 us at 1.2 GB/s, for 2 ranks that send to 6 each.
    CHECK(limit({0, 0, 0, 0, 1, 1, 1, 1}) < four);
    CHECK(limit({0, 1, 2, 3, 4, 5, 6, 7}) > four);
  }
}

}  // namespace tutti::test
