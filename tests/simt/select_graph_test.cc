// What communicators of devices choose where the graph of the host is known (cuda/comm/select.h):
// on all models and files, without any device.
#include <algorithm>

#include <fmt/format.h>

#include "planner/simulate/simulate.h"
#include "support/catch.h"
#include "support/topology/device_machines.h"
#include "support/topology/topology_files.h"
#include "topology/capture/machines.h"
#include "topology/models/model.h"

namespace tutti {
namespace {

using planner::DeviceLink;
using planner::DeviceMachine;

constexpr std::size_t kSizes[] = {std::size_t{64} << 10, std::size_t{4} << 20,
                                  std::size_t{1} << 30};

struct Host {
  std::string name;
  topology::Graph graph;
  DeviceMachine machine;
};

/// Hosts with at least two GPUs of whose links the graph knows all.
const std::vector<Host>& hosts() {
  static const std::vector<Host> all = [] {
    std::vector<std::string> names;
    for (const topology::Model* model : topology::models()) names.emplace_back(model->name);
    for (const auto& file : test::kMachineFiles) names.push_back(test::machine_path(file.name));
    std::vector<Host> found;
    for (const std::string& name : names) {
      auto read = topology::load_machine(name);
      REQUIRE(read);
      topology::Graph graph = std::move(read->graph);
      if (graph.all(topology::NodeKind::kHost).size() != 1 ||
          graph.all(topology::NodeKind::kGpu).size() < 2)
        continue;
      test::give_buses(graph);
      auto machine = test::with_graph(test::device_machine(graph), graph);
      INFO(name << ": " << (machine ? "" : machine.error().what));
      // A table of classes of links does not say what they carry.
      if (!machine && name.find("data/topology") != std::string::npos) continue;
      REQUIRE(machine);
      found.push_back({name.substr(name.rfind('/') + 1), std::move(graph), *std::move(machine)});
    }
    return found;
  }();
  return all;
}

planner::Request request_for(const DeviceMachine& machine, Collective collective, Contract contract,
                             std::size_t bytes) {
  return {.shape = planner::device_shape(collective, 0, contract, machine),
          .bytes = bytes,
          .contract = contract};
}

TEST_CASE("what is chosen takes hardly longer than what the simulator would choose") {
  constexpr double kMost = 1.1;
  CHECK(hosts().size() >= 11);
  std::string table;
  bool far = false;
  for (const Host& host : hosts()) {
    planner::Simulator simulator(host.graph, topology::default_endpoints(host.graph), {});
    for (const std::size_t bytes : kSizes) {
      const auto time = [&](const Algorithm& algorithm) {
        const auto sample = simulator.run(algorithm, *planner::find_protocol("simple"), bytes);
        REQUIRE(sample);
        return sample->microseconds;
      };
      const Algorithm* best = nullptr;
      for (const Algorithm* algorithm : simulator.candidates()) {
        if (best == nullptr || time(*algorithm) < time(*best)) best = algorithm;
      }
      const auto plans = planner::device_plans(
          request_for(host.machine, Collective::kAllReduce, Contract::kDeterministic, bytes),
          host.machine);
      REQUIRE(plans);
      const Algorithm& chosen = *plans->front().algorithm;
      const double ratio = time(chosen) / time(*best);
      far = far || ratio > kMost;
      table += fmt::format("{:24} {:>11} {:20} {:20} {:.2f}   estimate {:.1f}, simulated {:.1f}\n",
                           host.name, bytes, chosen.name, best->name, ratio,
                           plans->front().microseconds, time(chosen));
    }
  }
  INFO("machine | bytes | the runtime's choice | the simulator's choice | ratio\n" << table);
  CHECK_FALSE(far);
}

TEST_CASE("no estimate is below what the machine allows, nor below what is said of it") {
  for (const Host& host : hosts()) {
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
        for (const std::size_t bytes : kSizes) {
          const planner::Request request = request_for(host.machine, collective, contract, bytes);
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

}  // namespace
}  // namespace tutti
