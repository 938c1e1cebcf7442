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
  /// The fewest with which the plan is nearly as fast as it can be.
  std::uint32_t lanes(const Algorithm& algorithm, const Request& request, std::uint32_t by_user,
                      std::uint32_t by_source) const override;
  std::string refusal(const Algorithm& algorithm, std::uint32_t lanes,
                      const Request& request) const override;
  std::optional<double> estimate_us(const Candidate& candidate,
                                    const Request& request) const override;
  double rough_us(const Candidate& candidate, const Request& request) const override;
  std::optional<std::string> copy_engines_refusal(const Request& request) const override;

  /// Finds the fastest of all plans that kernels can run, and gives up on others as soon as they
  /// are slower: these then have the time that they take at least. Without it each gets its own.
  void find_fastest(const Request& request) const;

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
  /// The layout of an algorithm's plan for so many bytes, and its time; more than that, if it was
  /// given up. None: it is not known.
  struct Choice {
    Layout layout;
    std::optional<double> us;
  };
  /// A plan's simulation with any number of lanes. The model has to stay where it is.
  struct Simulation {
    const plan::Plan& plan;
    const plan::CostModel model;
    const std::size_t slot_bytes;
    plan::Estimator estimator;
    Simulation(const plan::Plan& of, plan::CostModel costs, std::size_t slot, int slots);
    double run(std::size_t count, std::uint32_t lanes, int slots, double limit_us);
  };
  const Choice& choice_of(const Algorithm& algorithm, const Request& request,
                          double limit_us = plan::kBeyondLimit) const;
  std::vector<Layout> layouts_of(const Algorithm& algorithm, const Request& request) const;
  std::vector<plan::RankOrder> orders_on(const Algorithm& algorithm, const Request& request,
                                         bool ordered) const;
  std::uint32_t least_lanes(const Algorithm& algorithm, const Request& request,
                            const Layout& layout) const;
  std::uint32_t most_lanes(const Algorithm& algorithm, const Request& request,
                           const Layout& layout) const;
  /// The lanes and slots of a format.
  cuda::RingSet slots_of(cuda::SlotFormat format) const;
  Recipe recipe_on(const Algorithm& algorithm, const Request& request, const Layout& layout) const;
  Simulation* simulation_of(const Algorithm& algorithm, const Request& request,
                            const Layout& layout) const;
  std::optional<double> time_of(const Algorithm& algorithm, const Request& request,
                                const Layout& layout, double limit_us = plan::kBeyondLimit) const;
  std::optional<double> copies_us(const Request& request) const;

  const DeviceMachine& machine_;
  const plan::CostModel model_;
  const std::map<cuda::SlotFormat, plan::CostModel> flagged_;
  const std::unique_ptr<const DevicePlanCosts> multicast_;  // Null: there is no such memory.
  // As far as asked for: by algorithm and bytes; and by algorithm, on orders or not, what is
  // mapped, and the format of slots, null where there are too many steps.
  mutable std::map<std::pair<const Algorithm*, std::size_t>, Choice> choices_;
  mutable std::map<std::tuple<const Algorithm*, bool, plan::Mapped, cuda::SlotFormat>,
                   std::unique_ptr<Simulation>>
      simulations_;
};

}  // namespace tutti::planner
