// File: planner/planner.h: which way a call goes, and the verified plans it can go by.
//
// Pure: the same request, shape and settings give the same choice on every rank.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "algorithms/algorithm.h"
#include "plan/plan.h"
#include "tutti/result.h"
#include "tutti/settings.h"

namespace tutti::planner {

/// A plan that the verifier has proved, and what that cost.
struct VerifiedPlan {
  plan::Plan plan;
  double build_us = 0;
  double verify_us = 0;
};

/// What a plan is made from: an algorithm, a shape, and how it is lowered.
struct Recipe {
  const Algorithm* algorithm = nullptr;
  plan::Shape shape;
  bool direct = false;     // For ranks that map each other's buffers.
  bool multicast = false;  // One slot to all, where a step sends to all.
  std::uint32_t lanes = 1;
  bool uneven = false;  // For blocks of any sizes, see plan/uneven.h.
};

/// Builds, lowers and verifies; or finds it done already. Plans live as long as the process. Any
/// thread.
Result<const VerifiedPlan*> prepare(const Recipe& recipe);

/// What is asked for.
struct Request {
  plan::Shape shape;
  std::size_t bytes = 0;  // Of the whole message: the larger of input and output.
  bool mapped = false;    // All ranks can map each other's buffers for this call.
  bool uneven = false;   // Blocks differ in size, so `bytes` does too, from rank to rank: not used.
  bool crowded = false;  // More ranks than CPUs: every wait for another rank costs a switch.
  Contract contract = Contract::kDeterministic;
};

/// Bytes up to which a call goes by packets.
std::size_t packet_limit(int rank_count, int usable_cpus);
/// The same where all ranks use buffers that peers can map: reading them saves the packet's copy,
/// but a plan takes one more round in which all ranks wait for each other.
std::size_t mapped_packet_limit(Collective collective, int rank_count, int usable_cpus);

/// The algorithm for a request. `forced` is Settings::algorithm; an unknown or unfit name is an
/// error.
Result<Recipe> choose(const Request& request, std::string_view forced);

/// The name that `forced` gives for a collective ("ring", "all_reduce=ring,broadcast=binomial");
/// empty: none.
Result<std::string> forced_name(std::string_view forced, Collective collective);

/// The lanes that the plans of a communicator may have: as many channels are needed between two
/// ranks.
Result<std::uint32_t> lanes_needed(int rank_count, const Settings& settings);

/// One line per plan prepared so far: name, shape, steps, cost.
std::string describe_plans();

}  // namespace tutti::planner
