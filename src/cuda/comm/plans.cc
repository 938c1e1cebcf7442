#include "cuda/comm/plans.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cuda/mesh/copy_engines.h"
#include "exec/lane.h"
#include "plan/text/lanes.h"
#include "tutti/detail/wire_codec.h"

namespace tutti {
namespace {

/// The bytes of the larger of input and output, as they travel.
std::size_t message_bytes(const Request& request, int rank_count) {
  const CollectiveTraits traits = traits_of(request.collective);
  const bool each = traits.input_each || traits.output_each;
  const std::size_t elements = request.count * static_cast<std::size_t>(each ? rank_count : 1);
  return request.wire.is_plain() ? elements * size_of(request.type)
                                 : kernels::encoded_bytes(request.wire.format, elements);
}

int root_of(const Request& request) {
  return has_root(request.collective) ? request.root.value : 0;
}

/// Without its lanes, which the caller adds.
std::string plan_in_words(const Algorithm& algorithm, const plan::Plan& plan) {
  const std::string order = plan.name.find("+order") != std::string::npos ? "+order" : "";
  return std::string(algorithm.name) + order + (plan.name.ends_with("+direct") ? "+direct" : "");
}

/// " as int8", if the call has a wire.
std::string wire_in_words(const Request& request) {
  return request.wire.is_plain() ? "" : " as " + to_string(request.wire);
}

/// Which trees a plan is along, if any: " along 2 trees".
std::string trees_in_words(const Algorithm& algorithm, plan::Shape shape) {
  const std::size_t trees = shape.trees.size();
  shape.trees.clear();
  if (trees == 0 || algorithm.applies(shape)) return {};
  return fmt::format(" along {} tree{}", trees, trees == 1 ? "" : "s");
}

}  // namespace

bool PlanCache::fits_one_shot(const Request& request) const {
  return request.collective == Collective::kAllReduce && rank_.eager && !rank_.staged &&
         request.wire.is_plain() &&
         request.count <= rank_.mesh->one_shot_elements(request.type, request.reduction.op);
}

bool PlanCache::is_eager(const Request& request) const {
  return fits_one_shot(request) && request.count * size_of(request.type) <= eager_limit_bytes();
}

Status PlanCache::find_eager_limit(const Request& request) {
  if (eager_limit_bytes_ || !fits_one_shot(request)) [[likely]]
    return ok();
  TUTTI_TRY(eager_limit_bytes_,
            planner::eager_limit_bytes(planner_request(request, {}), rank_.machine));
  return ok();
}

PlanCache::RouteKey PlanCache::key_of(const Request& request, plan::Mapped mapped) const {
  return {request.collective, root_of(request),
          planner::device_size_class(message_bytes(request, rank_.rank_count)), mapped,
          request.wire.format};
}

planner::Request PlanCache::planner_request(const Request& request, plan::Mapped mapped) {
  const int root = root_of(request);
  const Contract contract = rank_.settings.contract;
  auto [known, fresh] = requests_.try_emplace({request.collective, root});
  if (fresh)
    known->second = planner::device_request(request.collective, root, contract, rank_.machine);
  planner::Request asked = known->second;
  asked.bytes = message_bytes(request, rank_.rank_count);
  asked.mapped = mapped;
  asked.wire = request.wire;
  return asked;
}

Status PlanCache::prepare(const Request& request, plan::Mapped mapped) {
  TUTTI_RETURN_IF_ERROR(find_eager_limit(request));
  const RouteKey key = key_of(request, mapped);
  if (is_eager(request) || routes_.contains(key)) [[likely]]
    return ok();
  const RelaxedCapture relaxed;
  const exec::OnDevice on(rank_.device);
  TUTTI_TRY(routes_[key], make_route(request, mapped));
  return ok();
}

Status PlanCache::load(const planner::VerifiedPlan& verified, cuda::SlotFormat format,
                       const exec::CudaPlan*& loaded) {
  auto found = plans_.find({&verified, format});
  if (found == plans_.end()) {
    TUTTI_TRY(auto fresh, rank_.mesh->load(verified.plan, format));
    found = plans_.emplace(std::pair(&verified, format), std::move(fresh)).first;
  }
  loaded = &found->second;
  return ok();
}

/// By the first plan of the list that kernels can run.
Result<PlanCache::Route> PlanCache::make_route(const Request& request, plan::Mapped mapped) {
  const planner::Request asked = planner_request(request, mapped);
  TUTTI_TRY(const auto plans, planner::device_plans(asked, rank_.machine));
  std::string refused;
  bool multimem = false;
  for (const planner::Candidate& one : plans) {
    const std::string what = fmt::format(
        "  {}{} up to {} bytes{}: ", to_string(request.collective), wire_in_words(request),
        planner::device_size_class(asked.bytes),
        has_root(request.collective) ? fmt::format(", root {}", request.root.value) : "");
    if (one.multicast) {  // A plan follows, for the calls that kernels can't do so.
      multimem = true;
      multicast_choices_ +=
          fmt::format("{}{}, estimated {:.0f} us\n", what, one.name(), one.microseconds);
      continue;
    }
    const planner::DeviceRecipe made = planner::device_recipe(one, asked, rank_.machine);
    TUTTI_TRY(const planner::VerifiedPlan* verified, planner::prepare(made.recipe));
    Route route;
    route.name = one.copy_engines ? planner::kCopyEnginesName : one.algorithm->name;
    route.multimem = multimem;
    Status loads = one.copy_engines ? exec::CopyEngines::suits(verified->plan)
                                    : load(*verified, made.format, route.plan);
    if (!loads && loads.error().code == Code::kUnsupported) {  // On all ranks alike.
      refused = loads.error().what;
      continue;
    }
    TUTTI_RETURN_IF_ERROR(std::move(loads));
    if (one.copy_engines) route.copies = &verified->plan;
    auto words = fmt::format(
        "{}{}{}{}, {} times its lanes, estimated {:.0f} us\n", what,
        one.copy_engines ? std::string(one.name()) : plan_in_words(*one.algorithm, verified->plan),
        trees_in_words(*one.algorithm, verified->plan.shape),
        made.format == cuda::SlotFormat::kSimple
            ? ""
            : fmt::format(" over {}", planner::in_words(made.format)),
        one.lanes, one.microseconds);
    choices_.push_back({std::move(words), verified->plan});
    // Without slots ranks only touch each other's buffers.
    const auto is_slot = [](const plan::Location& at) { return at.place == plan::Place::kSlot; };
    route.two_shot =
        one.algorithm->name == "two_shot" && !exec::any_location(verified->plan, is_slot);
    return route;
  }
  return Error{Code::kUnsupported, refused, rank_.me};
}

std::string PlanCache::choices() const {
  const std::string nics =
      rank_.network() == nullptr
          ? ""
          : fmt::format("{}", fmt::join(rank_.network()->nics().names, " and "));
  std::string text = multicast_choices_;
  for (const Choice& one : choices_) {
    text += one.words;
    text += plan::lanes_in_words(one.plan, {rank_.me.value, rank_.machine.hosts.of, nics}, "    ");
  }
  return text;
}

std::size_t PlanCache::bytes() const {
  std::size_t sum = 0;
  for (const auto& [key, plan] : plans_) sum += plan.bytes();
  return sum;
}

}  // namespace tutti
