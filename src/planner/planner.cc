#include "planner/planner.h"

#include <chrono>
#include <map>
#include <mutex>
#include <tuple>

#include <fmt/format.h>

#include "base/fork.h"
#include "plan/hash.h"
#include "plan/passes/passes.h"
#include "plan/passes/vector_variant.h"
#include "plan/verify/verify.h"

namespace tutti::planner {
namespace {

double since_us(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

// For a plan from a file, its hash is enough.
auto key_of(const Recipe& recipe) {
  return std::tuple(
      recipe.algorithm, recipe.written == nullptr ? 0 : plan::hash_of(*recipe.written),
      recipe.shape, recipe.direct, recipe.read, recipe.shared, recipe.multicast, recipe.hosts,
      recipe.lanes, recipe.orders, recipe.vector_variant, recipe.fused_targets, recipe.slots);
}

struct Cache {
  std::mutex mutex;
  std::map<std::invoke_result_t<decltype(key_of), Recipe>, std::unique_ptr<VerifiedPlan>> plans;
};
Cache& cache() {
  static auto* instance = new Cache();  // Plans live as long as the process.
  return *instance;
}
const HeldAcrossFork plans_held(ForkOrder::kPlans, []() -> std::mutex& { return cache().mutex; });

Result<std::unique_ptr<VerifiedPlan>> make(const Recipe& recipe) {
  auto made = std::make_unique<VerifiedPlan>();
  auto start = std::chrono::steady_clock::now();
  made->plan = recipe.written != nullptr ? *recipe.written : build(*recipe.algorithm, recipe.shape);
  if (!recipe.orders.empty()) {
    auto ordered = plan::reorder(made->plan, recipe.orders);
    if (!ordered)
      return Error{Code::kUnsupported,
                   fmt::format("{} does not hold on other rank orders", made->plan.name)};
    made->plan = *std::move(ordered);
  }
  // First, as then each lane is looked at once.
  if (recipe.fused_targets > 0)
    made->plan = plan::fuse(made->plan, recipe.slots, recipe.fused_targets);
  if (recipe.lanes > 1) made->plan = plan::replicate(made->plan, recipe.lanes);
  const auto apply = [&](auto pass) {
    auto lowered = pass(made->plan);
    if (lowered && (!recipe.vector_variant || plan::runs_vector(*lowered)))
      made->plan = std::move(*lowered);
  };
  if (recipe.direct)
    apply([&](const plan::Plan& plan) { return plan::direct(plan, recipe.hosts, recipe.direct); });
  if (recipe.read) apply([&](const plan::Plan& plan) { return plan::read(plan, recipe.shared); });
  if (recipe.multicast) apply(plan::multicast);
  made->build_us = since_us(start);
  start = std::chrono::steady_clock::now();
  if (auto verified = plan::verify(made->plan, {.slots = recipe.slots}); !verified)
    return std::move(verified.error());
  made->verify_us = since_us(start);
  if (recipe.vector_variant && !plan::runs_vector(made->plan)) {
    return Error{
        Code::kUnsupported,
        fmt::format("{} {} hands blocks on by way of ranks that don't know their sizes, so "
                    "all blocks must be of one size; 'direct' takes any",
                    to_string(recipe.shape.collective), made->plan.name)};
  }
  return made;
}

}  // namespace

Result<const VerifiedPlan*> prepare(const Recipe& recipe) {
  const std::lock_guard lock(cache().mutex);
  auto& slot = cache().plans[key_of(recipe)];
  if (slot == nullptr) {
    TUTTI_TRY(slot, make(recipe));
  }
  return static_cast<const VerifiedPlan*>(slot.get());
}

plan::Shape shape_of(Collective collective, int rank_count, int root, const Settings& settings) {
  plan::Shape shape{collective, rank_count, root};
  shape.groups.sizes = settings.groups;
  shape.weights = settings.weights;
  return shape;
}

std::string describe_plans() {
  const std::lock_guard lock(cache().mutex);
  std::string text;
  for (const auto& [key, made] : cache().plans) {
    if (made == nullptr) continue;
    std::size_t steps = 0;
    for (const plan::Lane& lane : made->plan.ranks.front().lanes) steps += lane.steps.size();
    text += fmt::format("  {} {}, {} ranks: {} steps, built in {:.0f} us, verified in {:.0f} us\n",
                        to_string(made->plan.shape.collective), made->plan.name,
                        made->plan.shape.rank_count, steps, made->build_us, made->verify_us);
  }
  return text;
}

}  // namespace tutti::planner
