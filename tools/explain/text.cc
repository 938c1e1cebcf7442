#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/json.h"
#include "base/shown_time.h"
#include "tools/explain/explain.h"
#include "tools/simulate/simulate.h"
#include "tools/topo/topo.h"

namespace tutti::tools {
namespace {

using planner::Contender;
using planner::Explanation;
using planner::Sample;

constexpr std::size_t kWhy = 57;  // Where the words of a row begin.

std::string share_of_bound(double bound_us, double us) {
  if (bound_us <= 0) return "?";
  return is_shown(bound_us) ? fmt::format("{:.1f}", 100 * bound_us / us) : "-";
}

std::string row(const Explained& explained, std::size_t number, const Contender& contender) {
  std::string text =
      fmt::format("{:>2} {:<18} ", contender.refused ? "-" : fmt::format("{}", number + 1),
                  contender.algorithm->name);
  if (contender.sample) {
    const Sample& sample = *contender.sample;
    text += fmt::format(
        "{:<9} {:>8} {:>7} {:>6}  ", fmt::format("{}/{}", sample.protocol->name, sample.lanes),
        time_text(sample.microseconds), rate_text(explained.bus_bandwidth(sample.microseconds)),
        contender.refused ? ""
                          : share_of_bound(explained.explanation.bound_us, sample.microseconds));
  }
  text.resize(std::max(text.size(), kWhy), ' ');
  return wrapped(text + (number == 0 ? "chosen" : contender.why), kWhy);
}

// What the plan makes of the machine: ", groups of 4 in 8", ", weights 2,2,1", ", 3 trees".
std::string groups_text(const Sample& sample) {
  plan::Shape bare = sample.shape;
  bare.groups = {};
  if (!sample.algorithm->applies(bare))
    return fmt::format(", groups of {}", fmt::join(sample.shape.groups.sizes, " in "));
  bare.weights = {};
  if (!sample.algorithm->applies(bare))
    return fmt::format(", weights {}", fmt::join(sample.shape.weights, ","));
  if (bare.trees.empty()) return "";
  std::vector<int> shares;
  for (const plan::SpanningTree& tree : bare.trees) shares.push_back(tree.weight);
  return fmt::format(", {} trees with {} of the message", shares.size(), fmt::join(shares, ":"));
}

}  // namespace

std::string Explained::title() const {
  return fmt::format("{} of {} of {} on {}, {} ranks, contract {}", to_string(collective),
                     amount_text(bytes), to_string(type), machine, ranks, contract);
}

std::string to_text(const Explained& explained) {
  const Explanation& all = explained.explanation;
  const Sample& best = all.best();
  std::string text = wrapped(explained.title(), 2) + "\n";
  text += fmt::format("{:>2} {:<18} {:<9} {:>8} {:>7} {:>6}  {}\n", "", "algorithm", "protocol",
                      "us", "busbw", "%bound", "why");
  for (std::size_t i = 0; i < all.contenders.size(); ++i)
    text += row(explained, i, all.contenders[i]);
  const std::string share =
      is_shown(all.bound_us)
          ? fmt::format(", {} % of the bound", share_of_bound(all.bound_us, best.microseconds))
          : "";
  text += "\n";
  text += wrapped(
      fmt::format("Chosen: {} over {} in {} lane{}{}: {} us, bus bandwidth {} GB/s{}.",
                  best.algorithm->name, best.protocol->name, best.lanes, best.lanes == 1 ? "" : "s",
                  groups_text(best), time_text(best.microseconds),
                  rate_text(explained.bus_bandwidth(best.microseconds)), share),
      2);
  text += wrapped(fmt::format("Spent on: {}.", all.consists_of), 2);
  if (all.bound_us > 0)
    text += wrapped(
        fmt::format("Bound{}: {}: {}.", all.bound_joins ? ", with switches that add up" : "",
                    is_shown(all.bound_us) ? time_text(all.bound_us) + " us" : kNotShown,
                    all.bound_words),
        2);
  else
    text += wrapped(fmt::format("Bound: {}.", all.bound_words), 2);
  if (!all.assumed.empty()) text += wrapped(fmt::format("Assumed: {}.", all.assumed), 2);
  if (!all.to_be_faster.empty()) text += wrapped("To be faster: " + all.to_be_faster, 2);
  return text;
}

std::string to_json(const Explained& explained) {
  const Explanation& all = explained.explanation;
  Json json{{"collective", std::string(to_string(explained.collective))},
            {"machine", explained.machine},
            {"ranks", explained.ranks},
            {"bytes", explained.bytes},
            {"type", std::string(to_string(explained.type))},
            {"contract", explained.contract}};
  if (all.bound_us > 0) json["bound_us"] = all.bound_us;
  json["bound"] = all.bound_words;
  auto& candidates = json["candidates"] = Json::array();
  for (const Contender& contender : all.contenders) {
    Json entry{{"algorithm", std::string(contender.algorithm->name)},
               {"refused", contender.refused}};
    if (contender.sample) {
      const Sample& sample = *contender.sample;
      entry["protocol"] = std::string(sample.protocol->name);
      entry["lanes"] = sample.lanes;
      entry["groups"] = sample.shape.groups.sizes;
      if (!sample.shape.weights.empty()) entry["weights"] = sample.shape.weights;
      for (const plan::SpanningTree& tree : sample.shape.trees)
        entry["trees"].push_back({{"weight", tree.weight}, {"parents", tree.parents}});
      entry["us"] = sample.microseconds;
      entry["busbw"] = explained.bus_bandwidth(sample.microseconds);
      entry["start_us"] = sample.protocol->base_us;
      entry["latency_us"] = sample.latency_us;
      entry["messages"] = sample.messages;
      auto& busy = entry["busy"] = Json::array();
      for (const planner::Busy& resource : sample.busy)
        busy.push_back(
            {{"kind", std::string(resource.kind)}, {"name", resource.name}, {"us", resource.us}});
    }
    if (!contender.why.empty()) entry["why"] = contender.why;
    candidates.push_back(std::move(entry));
  }
  json["chosen"] = std::string(all.best().algorithm->name);
  if (!all.assumed.empty()) json["assumed"] = all.assumed;
  json["spent_on"] = all.consists_of;
  json["to_be_faster"] = all.to_be_faster;
  return json.text({.indent = 2}) + "\n";
}

}  // namespace tutti::tools
