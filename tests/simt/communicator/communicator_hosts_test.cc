// Communicators of devices whose ranks are on several hosts, as far as they know: a network is
// asked for, and each rank, or each group, stands for a host (docs/devices.md). Their rings between
// hosts are carried by every transport that joins hosts here.
#include <chrono>
#include <optional>
#include <random>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "transport/transport.h"

namespace tutti {
namespace {

using test::all_reduce_of;
using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::exchange_messages;
using test::said;

/// Transports that join hosts, and would join this process with itself.
std::vector<std::string> networks() {
  std::vector<std::string> names;
  const Peer self = this_process();
  for (const Transport* transport : transports()) {
    if (!(transport->network == NetworkCost{}) && transport->reach(self, self))
      names.emplace_back(transport->name);
  }
  return names;
}

Settings network_settings(std::string_view transport, int ranks_of_a_host) {
  Settings settings = test::small_settings();
  settings.transport = transport;
  settings.timeout = std::chrono::seconds(5);
  if (ranks_of_a_host > 1) settings.groups = {ranks_of_a_host};
  return settings;
}

/// Hosts of so many ranks; the last one may have fewer.
struct Form {
  std::vector<int> devices;
  int ranks_of_a_host;
};

TEST_CASE("every collective between hosts, over types, operations and sizes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  test::shuffle_threads(seed);
  const auto names = networks();
  REQUIRE_FALSE(names.empty());
  const Form forms[] = {{{0, 1, 2, 3}, 2}, {{0, 1, 0}, 1}, {{0, 0, 1}, 2}};
  for (std::size_t number = 0; number < std::size(forms); ++number) {
    // All forms by the first, one of them by each other.
    for (std::size_t name = 0; name < names.size(); ++name) {
      const Form& form = forms[number];
      if (name != 0 && number != name % std::size(forms)) continue;
      DeviceCluster cluster(form.devices, network_settings(names[name], form.ranks_of_a_host));
      INFO(names[name]);
      REQUIRE(cluster.complaint == "");
      const auto text = cluster.comms[0].describe();
      INFO(text);
      CHECK(text.find("joined by " + names[name]) != std::string::npos);
      CHECK((text.find("to rank 1: network") != std::string::npos) == (form.ranks_of_a_host == 1));
      CHECK(text.find("to rank 2: network") != std::string::npos);
      for (int i = 0; i < kCollectiveCount; ++i) {
        Case test;
        test.collective = static_cast<Collective>(i);
        test.ranks = static_cast<int>(form.devices.size());
        for (const std::size_t count : {0, 333, 5000}) {
          test.type = test::any_type(random);
          test.op = static_cast<ReduceOp>(random() % 6);
          test.count = count;
          test.root = static_cast<int>(random() % static_cast<unsigned>(test.ranks));
          test.in_place = random() % 2 == 0;
          REQUIRE(run_in_group(cluster.comms, cluster.streams, test, random()) == "");
        }
      }
    }
  }
}

TEST_CASE("a rank's device has the rings that are in its memory, and no others") {
  constexpr std::size_t kMiB = std::size_t{1} << 20;
  // A ring for each lane: 4 MiB with each peer. Beside them counters, less than the driver's
  // granule of 2 MiB, and a granule for others to try. Where NVLinks join all, packed slots and
  // lines of 128 bytes take 1 MiB each: a granule more.
  Settings settings = network_settings("", 1);
  settings.lanes = 4;
  settings.slot_count = 4;
  settings.slot_bytes = kMiB / 4;
  // Rank 2 has rings in device memory for all of its three peers, for one, for none.
  const auto bytes = [&](const std::string& transport, int ranks_of_a_host) {
    settings.transport = transport;
    settings.groups.clear();
    if (ranks_of_a_host > 1) settings.groups = {ranks_of_a_host};
    const DeviceCluster cluster({0, 1, 2, 3}, settings);
    return cluster.complaint.empty() ? cluster.comms[2].device_bytes() : 0;
  };
  const std::string name = networks().front();
  CHECK(bytes("", 1) == (12 + 6) * kMiB);
  CHECK(bytes(name, 2) == (4 + 4) * kMiB);
  CHECK(bytes(name, 1) == 4 * kMiB);
  const test::NoPeerAccess none;  // Devices 2 and 3 don't reach each other.
  CHECK(bytes("", 1) == (8 + 4) * kMiB);
}

TEST_CASE("calls between hosts can be captured and replayed") {
  DeviceCluster cluster({0, 1, 1}, network_settings("tcp", 2));
  REQUIRE(cluster.complaint == "");
  constexpr std::size_t kRanks = 3;
  const Case test = all_reduce_of(3000, kRanks);
  std::vector<std::unique_ptr<DeviceCase>> cases;
  std::vector<cudaGraphExec_t> graphs(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const exec::OnDevice on(cluster.comms[rank].device());
    cases.push_back(
        std::make_unique<DeviceCase>(test, rank, cluster.comms[rank].device(), Catch::rngSeed()));
    const cudaStream_t stream = cluster.streams[rank];
    REQUIRE(said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)) == "");
    REQUIRE(cases[rank]->start(cluster.comms[rank], stream) == "");
    cudaGraph_t graph = nullptr;
    REQUIRE(said(cudaStreamEndCapture(stream, &graph)) == "");
    REQUIRE(said(cudaGraphInstantiate(&graphs[rank], graph, 0)) == "");
    cudaGraphDestroy(graph);
  }
  for (int replay = 0; replay < 3; ++replay) {
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      REQUIRE(said(cudaGraphLaunch(graphs[rank], cluster.streams[rank])) == "");
    CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(40, kRanks), 5) == "");
  }
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    CHECK(cases[rank]->finish(cluster.comms[rank], cluster.streams[rank]) == "");
    cudaGraphExecDestroy(graphs[rank]);
  }
}

TEST_CASE("messages between hosts, and parts of several hosts' ranks") {
  DeviceCluster cluster({0, 1, 2, 3}, network_settings("tcp", 2));
  REQUIRE(cluster.complaint == "");
  std::vector<std::string> complaints(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        complaints[rank] = exchange_messages(cluster.comms[rank], cluster.streams[rank]);
        auto part = cluster.comms[rank].split(rank == 3 ? 1 : 0, 0);
        complaints[rank] +=
            part ? exchange_messages(*part, cluster.streams[rank]) : part.error().to_string();
      });
    }
  }
  CHECK(complaints == std::vector<std::string>(4));
}

TEST_CASE("an abort reaches ranks on other hosts at once") {
  Settings settings = network_settings("tcp", 1);
  settings.timeout = std::chrono::minutes(10);  // Before that the simulator calls it a hang.
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  const DeviceCase one(all_reduce_of(3000, 2), 0, 0, 1);
  REQUIRE(one.start(cluster.comms[0], cluster.streams[0]) == "");  // Rank 1 never calls it.
  cluster.comms[1].abort("of no more use");
  REQUIRE(said(cudaStreamSynchronize(cluster.streams[0])) == "");
  const Status found = cluster.comms[0].check();
  REQUIRE_FALSE(found);
  CHECK(found.error().code == Code::kAborted);
  CHECK(found.error().what.find("of no more use") != std::string::npos);
}

}  // namespace
}  // namespace tutti
