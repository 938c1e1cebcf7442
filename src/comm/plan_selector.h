// File: comm/plan_selector.h: what a communicator chooses its plans from.
//
// All of it is alike on every rank: settings that ranks compare when they meet, rank 0's table, the
// CPUs that all of them share. So ranks choose alike without a word between them.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/topology.h"
#include "comm/tuning.h"
#include "exec/host_executor.h"
#include "planner/place_costs.h"
#include "planner/plan_files.h"
#include "planner/planner.h"

namespace tutti {

/// It has more than 20 functions: setting it up, choosing, and what others ask to explain a choice.
class PlanSelector : public exec::PlanSource {
 public:
  using Plans = std::shared_ptr<const planner::PlanFiles>;

  /// `plans`: that users wrote; never null. `hosts`: of which of them each rank is, and what lies
  /// between; if ranks in a row share one, these are the groups, unless the settings say otherwise.
  /// `tuned`: the same, as a table knows them. What it measured of them comes before what is
  /// assumed; of hosts that carry more or less than others weights follow, unless the settings say
  /// otherwise.
  PlanSelector(Settings settings, Plans plans, int rank_count, int cpus,
               std::shared_ptr<const Tuning> tuning, const std::string& transport,
               planner::Hosts hosts, const TunedHosts& tuned = {});
  PlanSelector(const PlanSelector&) = delete;
  PlanSelector& operator=(const PlanSelector&) = delete;

  const planner::PlannerInputs& inputs() const { return inputs_; }
  const std::shared_ptr<const Tuning>& tuning() const { return tuning_; }
  const Plans& plans() const { return plans_; }
  /// The key of a table that is made with this communicator; between hosts all but the machine.
  const planner::TuningKey& key() const { return key_; }
  /// The user's, with groups and weights.
  const Settings& settings() const { return settings_; }
  /// What the graph of the hosts says, if it says where all ranks are: groups and weights follow,
  /// unless the settings say otherwise. Before the first use.
  void set(HostTopology topology, std::span<const Peer> peers);
  const HostTopology& topology() const { return topology_; }
  /// What the communicator has, once that is known.
  void set(const RegionConfig& config);
  void set(const NetworkCost& cost);  // That was measured goes before it.

  /// Up to which sizes calls are eager, and from which on plain buffers are read.
  Status set_limits(exec::HostExecutor::Options& options) const;
  Result<exec::PlanChoice> choose(const exec::Call& call, exec::Access access,
                                  std::size_t which) const override;
  /// What the user wants of one call, as the call carries it. kInvalidArgument for what there is
  /// not, or can't be taken here.
  Status take_override(exec::Call& call, std::string_view algorithm_override) const;
  /// What a plan of the collective is for.
  plan::Shape shape_of(Collective collective, int root, Contract contract) const;
  /// What the planner is asked for a call.
  planner::Request request_for(const exec::Call& call, exec::Access access) const;
  /// The plan from a file that a call takes, which goes before all others; null if there is none.
  /// `request`: what request_for says of the call.
  const plan::Plan* written_for(const exec::Call& call, const planner::Request& request) const;
  /// Lines for Communicator::describe().
  std::string describe() const;

 private:
  void use_measured_network(const TunedHosts& tuned);
  bool network_is_measured() const;
  std::string describe_hosts() const;
  std::string describe_topology() const;

  Settings settings_;
  const Plans plans_;
  const int rank_count_;
  const std::shared_ptr<const Tuning> tuning_;
  planner::TuningKey key_;
  HostTopology topology_;
  std::optional<planner::PlaceCosts> places_;
  planner::PlannerInputs inputs_;  // Points into the above.
};

}  // namespace tutti
