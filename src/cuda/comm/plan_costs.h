// File: cuda/comm/plan_costs.h: how long plans between devices take, and on how many lanes.
//
// The events of a plan are simulated as its kernels would run it (plan/estimate/estimate.h): with
// the slots of the communicator, and with all lanes that the plan would have. So what a tile waits
// for counts as it does in the simulator of machines (planner/simulate).
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cuda/comm/select.h"
#include "plan/estimate/estimate.h"

namespace tutti::planner {

/// Keeps what it has estimated. Not for several threads at a time.
class DevicePlanCosts final : public PlanCosts {
 public:
  /// `flagged`: what plans over slots with flags cost, by the formats of which there are some;
  /// `multicast`: what calls over multicast memory cost. The machine has to outlive this.
  DevicePlanCosts(const DeviceMachine& machine, plan::CostModel model,
                  std::map<cuda::SlotFormat, plan::CostModel> flagged = {},
                  std::unique_ptr<const DevicePlanCosts> multicast = nullptr)
      : machine_(machine),
        model_(std::move(model)),
        flagged_(std::move(flagged)),
        multicast_(std::move(multicast)) {}

  std::string_view overrides() const override { return machine_.overrides; }
  std::optional<std::string> multicast_refusal(const Request& request) const override;
  /// The fewest that more, as they double, are not enough faster than.
  std::uint32_t lanes(const Algorithm& algorithm, const Request& request, std::uint32_t by_user,
                      std::uint32_t by_source) const override;
  std::string refusal(const Algorithm& algorithm, std::uint32_t lanes,
                      const Request& request) const override;
  std::optional<double> estimate_us(const Candidate& candidate,
                                    const Request& request) const override;
  std::optional<std::string> copy_engines_refusal(const Request& request) const override;

  /// How a plan is made that its algorithm lays out best for the request's bytes.
  DeviceRecipe recipe(const Candidate& candidate, const Request& request) const;

 private:
  /// On the request's orders or as ranks are; over slots alone, or in what peers map of the
  /// buffers; over slots of a format; and so many times.
  struct Layout {
    bool ordered = false;
    plan::Mapped mapped = {};
    cuda::SlotFormat format = cuda::SlotFormat::kSimple;
    std::uint32_t lanes = 1;
  };
  const Layout& layout_of(const Algorithm& algorithm, const Request& request) const;
  std::optional<double> find_lanes(const Algorithm& algorithm, const Request& request,
                                   Layout& layout) const;
  std::vector<plan::RankOrder> orders_on(const Algorithm& algorithm, const Request& request,
                                         bool ordered) const;
  std::uint32_t least_lanes(const Algorithm& algorithm, const Request& request,
                            const Layout& layout) const;
  std::uint32_t most_lanes(const Algorithm& algorithm, const Request& request,
                           const Layout& layout) const;
  /// The lanes and slots of a format.
  cuda::RingSet slots_of(cuda::SlotFormat format) const;
  Recipe recipe_on(const Algorithm& algorithm, const Request& request, const Layout& layout) const;
  std::optional<double> time_of(const Algorithm& algorithm, const Request& request,
                                const Layout& layout) const;
  std::optional<double> copies_us(const Request& request) const;
  std::optional<double> simulated_us(const Recipe& recipe, const Layout& layout,
                                     std::size_t bytes) const;

  const DeviceMachine& machine_;
  const plan::CostModel model_;
  const std::map<cuda::SlotFormat, plan::CostModel> flagged_;
  const std::unique_ptr<const DevicePlanCosts> multicast_;  // Null: there is no such memory.
  // As far as asked for. By algorithm and bytes; and on orders or not, what is mapped, the format
  // of slots, and lanes: microseconds.
  mutable std::map<std::pair<const Algorithm*, std::size_t>, Layout> layouts_;
  mutable std::map<std::tuple<const Algorithm*, std::size_t, bool, plan::Mapped, cuda::SlotFormat,
                              std::uint32_t>,
                   std::optional<double>>
      times_;
};

}  // namespace tutti::planner
