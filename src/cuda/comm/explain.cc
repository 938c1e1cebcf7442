// Which way a call between devices would go, and why: for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cuda/comm/state.h"
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

planner::Candidate candidate_of(const planner::DeviceWay& way, bool forced) {
  planner::Candidate candidate;
  candidate.algorithm = way.algorithm;
  candidate.lanes = way.lanes;
  candidate.microseconds = way.microseconds;
  candidate.evidence = forced ? planner::Evidence::kForced : planner::Evidence::kEstimated;
  candidate.refused = way.refused;
  return candidate;
}

/// What another request would gain; empty: nothing.
Result<std::string> gain_of(std::string_view what, const planner::Request& request,
                            const planner::DeviceMachine& machine, double us) {
  TUTTI_TRY(const auto ways, planner::device_ways(request, machine));
  const double other = ways.front().microseconds;
  if (other <= 0 || other * 1.01 >= us) return std::string();
  return fmt::format("{}: {} in {:.4g} us, {:.2g} times as fast", what,
                     ways.front().algorithm->name, other, us / other);
}

/// What the user could change.
Result<std::vector<std::string>> to_be_faster(const planner::Request& request,
                                              const planner::DeviceMachine& machine, double us) {
  std::vector<std::string> sentences;
  const plan::Shape& shape = request.shape;
  if (request.mapped != plan::Mapped(true)) {
    planner::Request registered = request;
    registered.mapped = planner::device_maps(shape.collective, machine);
    TUTTI_TRY(sentences.emplace_back(),
              gain_of("memory that is registered (register_memory)", registered, machine, us));
  }
  if (request.contract == Contract::kDeterministic && reduces(shape.collective)) {
    planner::Request relaxed = request;
    relaxed.contract = Contract::kRelaxed;
    relaxed.shape = planner::device_shape(shape.collective, shape.root, relaxed.contract, machine);
    TUTTI_TRY(sentences.emplace_back(), gain_of("the relaxed contract", relaxed, machine, us));
  }
  std::erase(sentences, std::string());
  return sentences;
}

}  // namespace

Result<std::string> DeviceCommunicator::State::explain(const Request& request) {
  TUTTI_CHECK_OK(check(request));
  if (request.uneven)
    return std::string("Blocks that differ in size are messages between pairs.\n");
  planner::Request asked = plans.planner_request(request, memory.mapped_of(request));
  const std::size_t bytes = asked.bytes;
  asked.bytes = planner::device_size_class(bytes);  // For which a plan is chosen.
  const std::string heading =
      fmt::format("{} of {} bytes ({} x {}), as of {}, between {} ranks on devices{}, contract {}",
                  to_string(request.collective), bytes, request.count, to_string(request.type),
                  asked.bytes, rank.rank_count, shape_in_words(asked.shape),
                  asked.contract == Contract::kRelaxed ? "relaxed" : "deterministic");
  if (plans.is_eager(request))
    return fmt::format("{}\n\nTaken: packet, the one-shot kernel, as always for so few elements.\n",
                       heading);
  TUTTI_TRY(auto ways, planner::device_candidates(asked, rank.machine));
  planner::HostExplanation all;
  std::vector<planner::ExplainedWay> refused;
  for (planner::DeviceWay& way : ways) {
    if (way.refused.empty() && all.ways.empty()) {  // It is taken if kernels can.
      TUTTI_TRY(const auto* verified, planner::prepare(planner::device_recipe(
                                          *way.algorithm, asked, rank.machine, way.lanes)));
      if (const Status suits = rank.mesh->suits(verified->plan); !suits)
        way.refused = suits.error().what;
    }
    const auto candidate = candidate_of(way, way.microseconds <= 0);
    if (!way.refused.empty())
      refused.push_back({candidate, way.refused});
    else
      all.ways.push_back(
          {candidate,
           all.ways.empty() ? "" : planner::why_not(candidate, all.ways.front().candidate)});
  }
  if (all.ways.empty())
    return Error{Code::kInvalidArgument,
                 fmt::format("explain: nothing is left to choose for {}: {}",
                             to_string(request.collective), refused.front().why),
                 rank.me};
  const double us = all.ways.front().candidate.microseconds;
  all.ways.insert(all.ways.end(), refused.begin(), refused.end());
  all.bound_us = planner::device_bound_us(asked, rank.machine);
  all.bound_words = "bytes into and out of each device over all of its links, by published figures";
  TUTTI_TRY(all.to_be_faster, to_be_faster(asked, rank.machine, us));
  return planner::to_text(all, asked, heading);
}

Result<std::string> DeviceCommunicator::explain(const Request& request) const {
  Request asked = request;
  static std::byte somewhere[2];
  if (asked.input == nullptr) asked.input = somewhere;
  if (asked.output == nullptr) asked.output = somewhere + 1;
  return state_->explain(asked);
}

}  // namespace tutti
