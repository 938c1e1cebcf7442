// File: cuda/comm/plans.h: the plans that a rank has loaded, and which of them a call takes.
//
// A route leads from a kind of call and a class of sizes to a plan. `prepare` makes what is
// missing; a call then looks its route up, and neither allocates nor waits.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/comm/device_rank.h"

namespace tutti {

class PlanCache {
 public:
  struct Route {
    std::string_view name;  // The algorithm's, for as long as the process lives.
    const exec::CudaPlan* plan = nullptr;
    const plan::Plan* copies = nullptr;  // Instead: for copy engines.
    bool two_shot = false;  // Take the kernel that stands for the plan, if it takes the call.
    bool multimem = false;  // Go over multicast memory before, if that takes the call.
  };

  /// The rank has to outlive this.
  explicit PlanCache(const DeviceRank& rank) : rank_(rank) {}

  /// Whether a call takes the one-shot kernel, and no plan. After prepare or find_eager_limit.
  bool is_eager(const Request& request) const;
  /// Finds up to which size calls are eager, once one could be.
  Status find_eager_limit(const Request& request);
  std::size_t eager_limit_bytes() const { return eager_limit_bytes_.value_or(0); }
  /// Makes what the call needs; `mapped`: what peers can map of its buffers. One thread at a time.
  Status prepare(const Request& request, plan::Mapped mapped);
  /// After prepare.
  const Route& route(const Request& request, plan::Mapped mapped) const {
    return routes_.at(key_of(request, mapped));
  }
  /// What the planner is asked for such a call.
  planner::Request planner_request(const Request& request, plan::Mapped mapped);

  std::size_t count() const { return plans_.size(); }
  std::size_t bytes() const;
  /// The choices so far, a line each, and in which order their lanes pass the ranks.
  std::string choices() const;

 private:
  // Root, class of sizes; what peers map of the buffers, and how values travel.
  using RouteKey = std::tuple<Collective, int, std::size_t, plan::Mapped, WireFormat>;
  /// Whether the one-shot kernel can take the call.
  bool fits_one_shot(const Request& request) const;
  RouteKey key_of(const Request& request, plan::Mapped mapped) const;
  /// Errors as CudaMesh::load.
  Status load(const planner::VerifiedPlan& verified, cuda::SlotFormat format,
              const exec::CudaPlan*& loaded);
  Result<Route> make_route(const Request& request, plan::Mapped mapped);

  const DeviceRank& rank_;
  std::map<std::pair<Collective, int>, planner::Request> requests_;  // By root.
  // By plan, which lives as long as the process, and the format of slots.
  std::map<std::pair<const planner::VerifiedPlan*, cuda::SlotFormat>, exec::CudaPlan> plans_;
  std::map<RouteKey, Route> routes_;
  std::optional<std::size_t> eager_limit_bytes_;
  struct Choice {
    std::string words;
    const plan::Plan& plan;  // Lives as long as the process.
  };
  std::vector<Choice> choices_;
  std::string multicast_choices_;  // Lines, of calls that go over multicast memory.
};

}  // namespace tutti
