// File: tools/topo/device_choices.h: what a communicator of devices would choose on a machine that
// need not be here, beside what the simulator finds fastest there.
//
// The choice is the runtime's own code (cuda/comm/select.h, graph_costs.h), with the GPUs of a
// graph instead of those that CUDA lists. The simulator then times it and all it competes with,
// with the slots and the lanes of the communicator.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/comm/select.h"
#include "planner/kernel_shape.h"
#include "planner/simulate/simulate.h"
#include "topology/graph/graph.h"

namespace tutti::tools {

/// What a communicator of a host's GPUs has, a rank for each. No graph says how many
/// multiprocessors they have: taken to be as many as A100 have, or from Hopper on as H100.
planner::CommunicatorShape communicator_shape(const topology::Graph& graph,
                                              const Settings& settings = {});

/// A rank for each GPU of one host, in the order of the graph; all reach each other, over NVLink
/// where that leads there, else over PCI Express. GPUs without a PCI address get one. Errors:
/// several hosts, fewer than two GPUs, and those of planner::graph_costs().
Result<planner::DeviceMachine> device_machine(const topology::Graph& graph);

/// The same on several hosts with such graphs, joined by RDMA to and from the devices' memories;
/// without what the graphs say, which with_graphs() adds. Errors of that: as graph_costs().
planner::DeviceMachine device_machine(std::span<const topology::Graph* const> hosts);
Result<planner::DeviceMachine> with_graphs(planner::DeviceMachine machine,
                                           std::span<const topology::Graph* const> hosts);

struct TimedChoice {
  bool eager = false;  // The one-shot kernel, over packed lines.
  cuda::SlotFormat format = cuda::SlotFormat::kSimple;
  std::string_view algorithm = {};
  double us = 0;                      // As simulated.
  std::size_t lanes = 1, orders = 1;  // Times the lanes of the algorithm, on so many rank orders.
};
/// "ring", "one_shot (eager)", "ring*" over packed slots, "ring+" over lines.
std::string name_of(const TimedChoice& choice);

/// What is asked for. Rooted collectives have root 0.
struct ChoiceOf {
  Collective collective = Collective::kAllReduce;
  Contract contract = Contract::kDeterministic;
  plan::Mapped mapped = {};  // What of the buffers peers can map: none, or all that can be.
};

/// A call of so many bytes.
struct DeviceChoice {
  std::size_t bytes = 0;
  TimedChoice chosen, best;  // By the runtime; of all that the runtime could choose.
  double estimate_us = 0;    // What the runtime estimates for the first of its plans.

  double ratio() const { return chosen.us / best.us; }
};

/// The runtime's choices on a machine, which has to outlive this and to have its graph.
class DeviceChooser {
 public:
  static Result<DeviceChooser> create(const planner::DeviceMachine& machine, const ChoiceOf& what);
  /// Its choice, timed by the simulator.
  Result<TimedChoice> choose(std::size_t bytes);
  /// What it estimates for the first of its plans, once it has chosen one for that.
  double estimate_us() const { return estimate_us_; }
  /// With the communicator's slots of that format.
  planner::Simulator& simulator(cuda::SlotFormat format) { return *simulators_.at(format); }

 private:
  DeviceChooser(const planner::DeviceMachine& machine, planner::Request shaped);

  const planner::DeviceMachine& machine_;
  planner::Request shaped_;
  std::map<cuda::SlotFormat, std::unique_ptr<planner::Simulator>> simulators_;
  std::size_t eager_limit_ = 0;
  double estimate_us_ = 0;
};

/// One for each size. The machine has to have its graph.
Result<std::vector<DeviceChoice>> compare_choices(const planner::DeviceMachine& machine,
                                                  std::span<const std::size_t> sizes,
                                                  const ChoiceOf& what = {});

}  // namespace tutti::tools
