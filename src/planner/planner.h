// File: planner/planner.h: which plan a call takes, and makes verified plans.
//
// Pure: the same request, shape and settings give the same choice on every rank.
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "algorithms/algorithm.h"
#include "plan/passes/passes.h"
#include "plan/plan.h"
#include "planner/tuning_table.h"
#include "tutti/result.h"
#include "tutti/settings.h"
#include "tutti/wire.h"

namespace tutti::planner {

/// A plan that the verifier has proved, and what that cost.
struct VerifiedPlan {
  plan::Plan plan;
  double build_us = 0;
  double verify_us = 0;
};

/// What a plan is made from: an algorithm and a shape, or a plan from a file, and how it is
/// lowered.
struct Recipe {
  const Algorithm* algorithm = nullptr;
  const plan::Plan* written = nullptr;  // Instead of an algorithm.
  plan::Shape shape;
  plan::Mapped direct = false;  // For ranks that map each other's buffers.
  bool read = false;            // For ranks that can only read them, to copy;
  bool shared = false;          // and of which each does half.
  bool multicast = false;       // One slot to all, where a step sends to all.
  /// Steps are joined (plan::fuse), to at most so many targets. 0: they are not.
  std::uint32_t fused_targets = 0;
  std::uint32_t slots = 1;      // Per channel, on which the plan may count.
  std::vector<int> hosts = {};  // With direct: see plan::HostOf.
  std::uint32_t lanes = 1;
  std::vector<plan::RankOrder> orders = {};  // That lanes stand on; empty: as ranks are.
  bool vector_variant = false;  // For blocks of any sizes, see plan/passes/vector_variant.h.
};

/// Builds, lowers and verifies; or finds it done already. Plans live as long as the process. Any
/// thread.
Result<const VerifiedPlan*> prepare(const Recipe& recipe);

/// The call for which a plan is chosen.
struct Request {
  plan::Shape shape;
  std::size_t bytes = 0;        // In the whole message: the larger of input and output.
  plan::Mapped mapped = false;  // The peers' buffers that all ranks can map for this call. On the
                                // host both or nothing.
  bool read = false;            // Not that, but all can read each other's inputs;
  bool shared = false;          // and one would wait for the other: see plan::read.
  bool vector_variant =
      false;  // Blocks differ in size, so `bytes` does too, from rank to rank: not used.
  Contract contract = Contract::kDeterministic;
  Wire wire = {};  // Not plain: `bytes` are those that travel.
  /// Orders that the machine's links suggest for lanes, see plan::reorder. Not all plans gain.
  std::vector<plan::RankOrder> orders = {};
  std::string_view algorithm_override =
      {};  // For this call alone, see override.h; goes before PlannerInputs::overrides.
};

/// Ranks on several hosts.
struct Hosts {
  std::vector<int> of;               // By rank, from 0 on; empty: all share memory.
  NetworkCost cost;                  // Between them.
  std::vector<HostRate> rates = {};  // By host, where they differ; empty: all as the cost says.
  double rate_of(int host) const {
    return rates.empty() ? cost.link.gigabytes_per_second
                         : rates[static_cast<std::size_t>(host)].gigabytes_per_second;
  }
};
/// By host, how many ranks are there. `hosts`: as Hosts::of.
std::vector<std::size_t> ranks_on(const std::vector<int>& hosts);
/// Whether some ranks share memory: buffers that peers can map mean nothing where none do.
bool some_share_memory(const std::vector<int>& hosts);
/// The most pairs that a host has, of a rank there and one elsewhere: what crosses its network when
/// all send to all. 0: there is one host.
std::size_t most_pairs_across(const std::vector<int>& hosts);

/// The most lanes of a communicator. Each costs memory, for channels between all ranks.
inline constexpr std::uint32_t kMostLanes = 64;
/// Between devices a lane's share of a piece is worth a block of its own from so many bytes on. Not
/// measured.
inline constexpr std::size_t kLaneBytes = std::size_t{32} << 10;
/// So in how many lanes, of at most so many, pieces of that size go: a power of two.
inline std::uint32_t lanes_worth(std::size_t piece_bytes, std::uint32_t most) {
  const auto shares = std::clamp<std::size_t>(piece_bytes / kLaneBytes, 1, std::max(1U, most));
  return static_cast<std::uint32_t>(std::bit_floor(shares));
}

struct PlaceCosts;  // place_costs.h

/// What a choice is made from, beside the request: alike on all ranks of a communicator.
struct PlannerInputs {
  const TuningTable* table = nullptr;  // For this machine and these ranks, if there is one.
  HostCosts costs;                     // For estimates, where there is no table.
  Hosts hosts = {};
  const PlaceCosts* places = nullptr;  // What the graph of the hosts says, if it is known.
  int usable_cpus = 2;                 // On all hosts together.
  std::string_view overrides = {};     // Settings::algorithm.
  std::uint32_t lanes = 0;       // Settings::lanes: how often lanes are repeated; 0: by the table.
  std::uint32_t most_lanes = 0;  // That the communicator has; 0: as many as anything needs.
  std::size_t packet_bytes = 32768;  // The largest packet,
  std::size_t slot_bytes = 32768;    // and what the channels are made of.
  int slots = 2;
};

/// How a request's plan is made of an algorithm.
Recipe recipe_of(const Algorithm& algorithm, const Request& request, const PlannerInputs& inputs,
                 std::uint32_t lanes);

/// The plan for a request: of the first of candidates() (select.h) that is not packets.
/// kInvalidArgument if a forced one can't be taken, or everything is forbidden.
Result<Recipe> choose(const Request& request, const PlannerInputs& inputs);

/// Bytes up to which a call is eager: the largest message of which that is the first of
/// candidates(). With `request.mapped`: where ranks lately used buffers that all of them can map,
/// as reading these saves the packet's copy. The request's bytes are not used. Estimates have no
/// say.
Result<std::size_t> eager_limit_bytes(Request request, const PlannerInputs& inputs);

/// What the plan of a call is for, with the groups and weights that are set.
plan::Shape shape_of(Collective collective, int rank_count, int root, const Settings& settings);

/// The lanes that the plans of a communicator may have: as many channels are needed between two
/// ranks. What is forced, tuned, a rule, or for weights alone has as many as it needs; what else is
/// estimated has to do with them. kInvalidArgument where what is forced can't be taken.
Result<std::uint32_t> lanes_needed(int rank_count, const Settings& settings,
                                   const PlannerInputs& inputs);

/// One line per plan prepared so far: name, shape, steps, cost.
std::string describe_plans();

}  // namespace tutti::planner
