// File: exec/routes.h: which plan a call takes, with its rings looked up: a cache of what the plan
// source answered.
//
// Every rank makes the same calls, so all ask in the same calls, also where the cache forgets.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "exec/adapt/plan_trials.h"
#include "exec/calls/active_call.h"
#include "exec/calls/call_board.h"
#include "exec/lane.h"
#include "exec/plan_source.h"

namespace tutti::exec {

/// A call line's content before a plan is run for the first time on a route: which plan it is.
struct PlanName {
  std::uint64_t hash = 0;
  std::array<char, kLinePayload - sizeof(std::uint64_t)> text{};  // For people; may be cut off.
};
static_assert(sizeof(PlanName) == kLinePayload);

struct BoundPlan {
  std::vector<BoundLane> lanes;
  std::vector<std::byte> scratch;
  bool tiled = false, partials = false;
  bool any_scratch = false;  // Some rank has scratch; all have tiles of one size.
  std::unique_ptr<kernels::WireWork> wire_work;  // Once a call with a wire went by it.
  PlanName name;
};

/// How calls of one kind and size go, once the plan source was asked.
struct Route {
  std::uint64_t word = 0, count = 0;  // pack(call) and its count; 0: an empty entry.
  BoundPlan* plan = nullptr;
  std::size_t tile_elements = 0, tiles = 0;
  Access access = Access::kSlots;
  std::size_t which = 0;  // An index into the plans that may be tried.
  OnlineTuning online_tuning = {};
  bool agreed = false;  // All ranks have said that they run this plan.
};

class Routes {
 public:
  Routes(const CallBoard& board, std::shared_ptr<const PlanSource> source, PlanTrials& trials);

  /// The route of a call, for which another plan may be on trial.
  Result<Route*> find(const ActiveCall& call, Access access);

 private:
  static constexpr std::size_t kRoutes = 512;  // With two places for each call.

  Result<Route> make(const ActiveCall& call, Access access, std::size_t which, OnlineTuning* known);
  BoundPlan& bind(const plan::Plan& plan);
  Result<std::size_t> slot_elements(const ActiveCall& call, const BoundPlan& bound) const;
  OnlineTuning online_tuning_of(const ActiveCall& call, const PlanChoice& choice) const;

  const CallBoard& board_;
  std::shared_ptr<const PlanSource> source_;
  PlanTrials& trials_;
  Links links_;
  std::map<const plan::Plan*, BoundPlan> bound_;
  std::vector<Route> routes_ = std::vector<Route>(kRoutes);
};

}  // namespace tutti::exec
