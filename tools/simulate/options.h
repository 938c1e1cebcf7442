// File: tools/simulate/options.h: what `tutti simulate` and `tutti explain` are asked: a
// collective, a machine, which algorithms and protocols, sizes and ranks.
#pragma once
#include <string>
#include <vector>

#include "perf/command_line/command_line.h"
#include "planner/simulate/simulate.h"
#include "tools/topo/topo.h"

namespace tutti::tools {

/// The words of the command line; the defaults are those of `tutti simulate`.
struct SimulateWords {
  GraphSource source;
  std::string collective = "all_reduce", contract = "deterministic", type = "float32";
  std::vector<std::string> algorithms, protocols;
  std::string bytes = "8:16G:4", ranks;
  int root = 0;
};

/// The meaning of the options.
struct SimulateJob {
  planner::SimulateOptions simulate;
  std::vector<const Algorithm*> algorithms;         // Empty: all.
  std::vector<const planner::Protocol*> protocols;  // All, if none was named.
  std::vector<double> bytes, ranks;                 // No ranks: all of the machine.
};

/// What a name means; the error says which there are.
Result<Collective> collective_named(const std::string& name);
Result<Contract> contract_named(const std::string& name);
Result<const Algorithm*> algorithm_named(Collective collective, const std::string& name);

/// Adds all of them but --bytes and --ranks, which each command describes itself.
void add_simulate_options(const perf::Command& command, SimulateWords& words);
/// Errors name the option and what there is.
Result<SimulateJob> understand(const SimulateWords& words);

/// A machine and those of its nodes that ranks are on.
struct RankedMachine {
  topology::Graph graph;
  std::vector<topology::NodeId> ranks;
};
/// With so many ranks (0: as many as it has); a model without a size and a machine of one host
/// grow. The root has to be one.
Result<RankedMachine> machine_for(const GraphSource& source, int ranks, int root);
/// "hgx-h100:2", a file's name, "this machine"; and that ranks are on NUMA nodes, if the file has
/// no GPU.
std::string name_of(const GraphSource& source, const topology::Graph& graph);
std::string name_of(const GraphSource& source);

}  // namespace tutti::tools
