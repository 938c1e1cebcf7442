#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>

#include "base/check.h"
#include "plan/names.h"
#include "plan/text/text.h"

namespace tutti::plan {
namespace {

void print_location(std::string& text, const Location& at, bool is_source) {
  const auto out = std::back_inserter(text);
  switch (at.place) {
    case Place::kInput: fmt::format_to(out, "input[{}]", at.chunk); return;
    case Place::kOutput: fmt::format_to(out, "output[{}]", at.chunk); return;
    case Place::kPeerInput: fmt::format_to(out, "input({})[{}]", at.peer, at.chunk); return;
    case Place::kPeerOutput: fmt::format_to(out, "output({})[{}]", at.peer, at.chunk); return;
    case Place::kScratch:
      fmt::format_to(out, "scratch[{}]:{}", at.chunk, to_string(at.form));
      return;
    case Place::kSlot:
      fmt::format_to(out, "{}({}):{}", is_source ? "from" : "to", at.peer, to_string(at.form));
      return;
    case Place::kMulticast:
      if (is_source) {
        fmt::format_to(out, "multicast({}):{}", at.peer, to_string(at.form));
      } else {
        fmt::format_to(out, "multicast:{}", to_string(at.form));
      }
      return;
  }
  text += "nowhere";
}

void print_step(std::string& text, const Lane& lane, const Step& step) {
  const auto out = std::back_inserter(text);
  if (step.kind != StepKind::kMove) {
    fmt::format_to(out, "  {} {}\n", step.kind == StepKind::kSignal ? "signal" : "wait", step.peer);
    return;
  }
  fmt::format_to(out, "  move {}: ", step.chunk);
  for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i) {
    if (i > 0) text += i == step.source_count ? " -> " : ", ";
    print_location(text, lane.locations[step.first + i], i < step.source_count);
  }
  text += '\n';
}

void print_rank(std::string& text, const Plan& plan, std::size_t rank) {
  const RankPlan& steps = plan.ranks[rank];
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "rank {}", rank);
  if (steps.scratch_chunks > 0) fmt::format_to(out, " scratch {}", steps.scratch_chunks);
  text += '\n';
  for (std::size_t lane = 0; lane < steps.lanes.size(); ++lane) {
    fmt::format_to(out, " lane {}\n", lane);
    for (const Step& step : steps.lanes[lane].steps) print_step(text, steps.lanes[lane], step);
  }
}

}  // namespace

std::string to_text(const Location& location, bool is_source) {
  std::string text;
  print_location(text, location, is_source);
  return text;
}

std::string to_text(const Plan& plan) {
  std::string text = fmt::format("plan {} {} ranks {} pieces {} contract {}", plan.name,
                                 tutti::to_string(plan.shape.collective), plan.shape.rank_count,
                                 plan.pieces, to_string(plan.contract));
  if (plan.shape.root != 0) text += fmt::format(" root {}", plan.shape.root);
  const auto list = [&text](std::string_view word, const std::vector<int>& numbers) {
    if (!numbers.empty()) text += fmt::format(" {} {}", word, fmt::join(numbers, ","));
  };
  list("group", plan.shape.groups.sizes);
  list("weights", plan.shape.weights);
  for (const SpanningTree& tree : plan.shape.trees)
    list(fmt::format("tree {}:", tree.weight), tree.parents);
  if (plan.entry_barrier) text += " together";
  if (plan.apart) text += " apart";
  text += '\n';
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) print_rank(text, plan, rank);
  return text;
}

std::string to_text(const Plan& plan, Rank rank) {
  TUTTI_CHECK(rank.value >= 0 && static_cast<std::size_t>(rank.value) < plan.ranks.size());
  std::string text;
  print_rank(text, plan, static_cast<std::size_t>(rank.value));
  return text;
}

}  // namespace tutti::plan
