// Which plan a call between devices would take, and why, in words.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cuda/comm/state.h"
#include "cuda/mesh/copy_engines.h"
#include "planner/explain.h"

namespace tutti {
namespace {

/// Groups, weights and trees, as far as there are any.
std::string shape_in_words(const plan::Shape& shape) {
  std::string text;
  if (!shape.groups.sizes.empty())
    text += fmt::format(", groups of {}", fmt::join(shape.groups.sizes, ","));
  if (!shape.weights.empty()) text += fmt::format(", weights {}", fmt::join(shape.weights, ","));
  if (shape.trees.empty()) return text;
  std::vector<int> weights;
  for (const plan::SpanningTree& tree : shape.trees) weights.push_back(tree.weight);
  return text +
         fmt::format(", {} trees with {} of the message", weights.size(), fmt::join(weights, ":"));
}

/// Adds the changes that the user could make.
void add_faster(planner::CallExplanation& all, const planner::Request& request,
                const planner::DeviceMachine& machine) {
  const plan::Shape& shape = request.shape;
  if (request.mapped != plan::Mapped(true) && request.wire.is_plain()) {
    planner::Request registered = request;
    registered.mapped = planner::device_maps(shape.collective, machine);
    all.add_faster("memory that is registered (register_memory)",
                   planner::device_candidates(registered, machine));
  }
  if (request.contract == Contract::kDeterministic && reduces(shape.collective)) {
    planner::Request relaxed =
        planner::device_request(shape.collective, shape.root, Contract::kRelaxed, machine);
    relaxed.bytes = request.bytes;
    relaxed.mapped = request.mapped;
    relaxed.wire = request.wire;
    all.add_faster("the relaxed contract", planner::device_candidates(relaxed, machine));
  }
}

}  // namespace

Result<DeviceCommunicator::State::Choice> DeviceCommunicator::State::choose(
    const Request& request, const planner::Request& asked) const {
  TUTTI_TRY(auto list, planner::device_candidates(asked, rank.machine));
  auto format = cuda::SlotFormat::kSimple;
  for (planner::Candidate& one : list) {  // The first that kernels can run is taken.
    if (!one.refused.empty()) break;
    if (one.multicast && multimem_of(request)) break;
    if (one.multicast) {
      one.refused = fmt::format("takes no {} by {}", to_string(request.type),
                                to_string(request.reduction.op));
      continue;
    }
    const planner::DeviceRecipe made = planner::device_recipe(one, asked, rank.machine);
    TUTTI_TRY(const auto* verified, planner::prepare(made.recipe));
    const Status suits = one.copy_engines ? exec::CopyEngines::suits(verified->plan)
                                          : rank.mesh->suits(verified->plan, made.format);
    if (suits) {
      format = made.format;
      break;
    }
    one.refused = suits.error().what;
  }
  std::stable_partition(list.begin(), list.end(),
                        [](const planner::Candidate& one) { return one.refused.empty(); });
  return Choice{std::move(list), format};
}

Result<std::string> DeviceCommunicator::State::explain(const Request& request) {
  TUTTI_RETURN_IF_ERROR(check(request));
  if (request.vector_variant)
    return std::string("Blocks that differ in size are messages between pairs.\n");
  planner::Request asked = plans.planner_request(request, memory.mapped_of(request));
  const std::size_t bytes = asked.bytes;
  asked.bytes = planner::device_size_class(bytes);  // For which a plan is chosen.
  const std::string from =
      rank.topology.why_not.empty() ? "; from: " + rank.topology.source : std::string();
  const std::string heading = fmt::format(
      "{} of {} bytes ({} x {}{}), as of {}, between {} ranks on devices{}, contract {}{}",
      to_string(request.collective), bytes, request.count, to_string(request.type),
      request.wire.is_plain() ? "" : " as " + to_string(request.wire), asked.bytes, rank.rank_count,
      shape_in_words(asked.shape),
      asked.contract == Contract::kRelaxed ? "relaxed" : "deterministic", from);
  TUTTI_RETURN_IF_ERROR(plans.find_eager_limit(request));
  if (plans.is_eager(request))
    return fmt::format(
        "{}\n\nTaken: packet, the one-shot kernel, as for all of up to {} bytes here.\n", heading,
        plans.eager_limit_bytes());
  TUTTI_TRY(Choice choice, choose(request, asked));
  TUTTI_TRY(auto all, planner::explained(std::move(choice.list), request.collective));
  planner::DeviceBound bound = planner::device_bound(asked, rank.machine);
  all.bound_us = bound.us;
  all.bound_words = std::move(bound.words);
  add_faster(all, asked, rank.machine);
  std::string text = planner::to_text(all, asked, heading);
  if (choice.format != cuda::SlotFormat::kSimple)
    text += fmt::format("\nThe first goes over {}: flags lie beside data.\n",
                        planner::in_words(choice.format));
  return text;
}

Result<double> DeviceCommunicator::State::estimate_us(const Request& request) {
  TUTTI_RETURN_IF_ERROR(check(request));
  if (request.vector_variant)
    return Error{Code::kUnsupported, "blocks that differ in size are messages: estimate these"};
  planner::Request asked = plans.planner_request(request, memory.mapped_of(request));
  TUTTI_RETURN_IF_ERROR(plans.find_eager_limit(request));
  if (plans.is_eager(request)) return planner::eager_us(asked, rank.machine);
  asked.bytes = planner::device_size_class(asked.bytes);
  TUTTI_TRY(const Choice choice, choose(request, asked));
  if (choice.list.empty() || !choice.list.front().refused.empty())
    return Error{Code::kUnsupported, "there is no plan that can be taken"};
  return choice.list.front().microseconds;
}

Result<double> DeviceCommunicator::estimate_us(const Request& request) const {
  return state_->estimate_us(with_wire(with_buffers(request), state_->rank.settings));
}

Result<double> DeviceCommunicator::estimate_us(std::size_t bytes, Rank peer) const {
  const DeviceRank& rank = state_->rank;
  if (peer.value < 0 || peer.value >= rank.rank_count)
    return Error{Code::kInvalidArgument, fmt::format("there is no rank {}", peer.value)};
  return planner::message_us(rank.machine, Rank{rank.me}, peer, bytes);
}

Result<std::string> DeviceCommunicator::explain(const Request& request) const {
  return state_->explain(with_wire(with_buffers(request), state_->rank.settings));
}

}  // namespace tutti
