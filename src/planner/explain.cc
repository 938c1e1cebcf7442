#include "planner/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/shown_time.h"
#include "base/times_text.h"
#include "plan/chunks.h"
#include "planner/machine_cost.h"
#include "planner/place_costs.h"
#include "planner/weights.h"
#include "topology/bounds/bound.h"

namespace tutti::planner {
namespace {

constexpr double kAlike = 1.005;                // Times as long: no reason to prefer one.
constexpr std::size_t kWidth = 100, kWhy = 54;  // Columns; where the words of a row begin.

std::string us_text(double us) {
  return us < 1000 ? fmt::format("{:.2f}", us) : fmt::format("{:.0f}", us);
}

/// Lines of at most 100 columns, all but the first indented; breaks at blanks.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string lines;
  for (std::size_t room = kWidth; !text.empty(); room = kWidth - indent) {
    std::size_t end = text.size();
    if (end > room) {
      const std::size_t blank = text.rfind(' ', room);
      end = blank == std::string_view::npos || blank == 0 ? room : blank;
    }
    if (!lines.empty()) lines += std::string(indent, ' ');
    lines += std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(end + (end < text.size() && text[end] == ' ' ? 1 : 0));
  }
  return lines;
}

/// Why not a candidate, of which it is known which was taken.
std::string why_not(const Candidate& other, const Candidate& taken) {
  if (!other.refused.empty()) return other.refused;
  const bool timed = other.microseconds > 0 && taken.microseconds > 0;
  const double times = timed ? other.microseconds / taken.microseconds : 0;
  if (times > kAlike) return fmt::format("{} times as long", times_text(times));
  if (!timed || other.evidence != taken.evidence)
    return fmt::format("{} comes before {}", to_string(taken.evidence), to_string(other.evidence));
  return "as fast";
}

}  // namespace

void CallExplanation::add_faster(std::string_view what,
                                 const Result<std::vector<Candidate>>& others) {
  if (!others || others->empty() || !others->front().refused.empty()) return;
  const Candidate& best = others->front();
  const double us = taken().microseconds;
  if (best.microseconds <= 0 || best.microseconds * kAlike >= us) return;
  to_be_faster.push_back(fmt::format("{}: {} in {} us, {} times as fast", what, best.name(),
                                     us_text(best.microseconds),
                                     times_text(us / best.microseconds)));
}

Result<CallExplanation> explained(std::vector<Candidate> list, Collective collective) {
  if (list.empty() || !list.front().refused.empty()) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("explain: there is nothing left to choose for {}{}", to_string(collective),
                    list.empty() ? "" : ": " + list.front().refused)};
  }
  CallExplanation all;
  const Candidate taken = list.front();
  for (Candidate& candidate : list) {
    std::string why = all.ways.empty() ? "" : why_not(candidate, taken);
    all.ways.push_back({std::move(candidate), std::move(why)});
  }
  return all;
}

double bus_factor(Collective collective, int ranks) {
  const double share = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::kAllReduce: return 2 * share;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExclusiveScan: return 1;
    default: return share;
  }
}

double memory_traffic(const plan::Shape& shape, std::size_t bytes) {
  const double n = shape.rank_count;
  const CollectiveTraits traits = traits_of(shape.collective);
  const double in = plan::input_blocks(shape), out = plan::output_blocks(shape);
  const double block = static_cast<double>(bytes) / std::max(in, out);
  // The last rank's input of an exclusive scan is not read, and the first one has no output.
  const double ranks = traits.summed == Summed::kBelow ? n - 1 : n;
  return block * (in * (traits.root_input ? 1 : ranks) + out * (traits.root_output ? 1 : ranks));
}

namespace {

/// Bytes that have to go into some host, or out of it, at least; `hosts` by rank, not empty. An
/// all-reduce of M between H hosts takes 2 M (H - 1) / H (Patarasuk, Yuan, "Bandwidth optimal
/// all-reduce algorithms for clusters of workstations", JPDC 2009).
double network_traffic(const plan::Shape& shape, std::size_t bytes, const std::vector<int>& hosts) {
  const std::vector<std::size_t> on = ranks_on(hosts);
  if (on.size() == 1) return 0;
  const double n = shape.rank_count, all = static_cast<double>(bytes);
  const auto count = static_cast<double>(on.size());
  const auto at_root =
      static_cast<double>(std::ranges::count(hosts, hosts[static_cast<std::size_t>(shape.root)]));
  // Over hosts, of the share of blocks that the others have.
  const double most = (n - static_cast<double>(std::ranges::min(on))) / n;
  const double exchanged = static_cast<double>(most_pairs_across(hosts)) / n;
  switch (shape.collective) {
    case Collective::kAllReduce: return 2 * all * (count - 1) / count;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScan:  // What the first host adds up goes to all others.
    case Collective::kExclusiveScan: return all;
    case Collective::kAllGather:
    case Collective::kReduceScatter: return all * most;
    case Collective::kGather:
    case Collective::kScatter: return all * (n - at_root) / n;
    case Collective::kAllToAll: break;
  }
  return all * exchanged;
}

/// Where the costs are from.
std::string_view origin_of(const PlannerInputs& inputs) {
  if (inputs.table != nullptr) return "measured by tutti tune";
  const bool measured = inputs.places != nullptr && inputs.places->network.gigabytes_per_second > 0;
  return measured ? "measured by tutti topo measure" : "assumed";
}

/// What the links between the places allow: each place gives and gets what its ranks do together,
/// if all have as many.
std::optional<topology::Bound> places_bound(const Request& request, const PlaceCosts& places) {
  std::vector<std::size_t> on(places.places.size());
  for (const std::uint32_t place : places.of) ++on[place];
  const auto [least, most] = std::ranges::minmax(on);
  if (least != most || on.size() < 2) return std::nullopt;
  const auto place = [&](int rank) -> std::size_t {
    return places.of[static_cast<std::size_t>(std::max(0, rank))];
  };
  const Collective collective = request.shape.collective;
  auto found =
      topology::bound(*places.graph, pattern_of(collective), places.places,
                      ends_of(collective, request.shape.root, request.shape.rank_count, place));
  return found ? std::optional(*std::move(found)) : std::nullopt;
}

/// The time that no way can beat, and why.
void find_bound(const Request& request, const PlannerInputs& inputs, CallExplanation& all) {
  const HostCosts& costs = inputs.table != nullptr ? inputs.table->costs : inputs.costs;
  const int cpus = std::clamp(inputs.usable_cpus, 1, request.shape.rank_count);
  const double rate = costs.reduce_gigabytes_per_second;
  all.bound_us = memory_traffic(request.shape, request.bytes) * 1e-3 / (rate * cpus);
  all.bound_words =
      fmt::format("inputs read and outputs written once, by {} CPU{} at {:.3g} GB/s each ({})",
                  cpus, cpus == 1 ? "" : "s", rate, origin_of(inputs));
  const Hosts& hosts = inputs.hosts;
  if (inputs.places != nullptr) {
    const auto found = places_bound(request, *inputs.places);
    if (!found) return;
    // Seconds a MB are microseconds a byte.
    const double us = found->seconds_per_mb.value() * static_cast<double>(request.bytes);
    if (us <= all.bound_us) return;
    all.bound_us = us;
    all.bound_words = found->cut.words;
    return;
  }
  if (hosts.of.empty()) return;
  double bytes = network_traffic(request.shape, request.bytes, hosts.of);
  double gigabytes_per_second = hosts.cost.link.gigabytes_per_second;
  if (!hosts.rates.empty() && request.shape.collective == Collective::kAllReduce) {
    // Every host gives all of its message, the slowest too; and all together what alike ones would.
    double together = 0, slowest = gigabytes_per_second;
    for (const HostRate& host : hosts.rates) {
      together += host.gigabytes_per_second;
      slowest = std::min(slowest, host.gigabytes_per_second);
    }
    const double alike = together / static_cast<double>(hosts.rates.size());
    const auto whole = static_cast<double>(request.bytes);
    const bool held_up = whole / slowest > bytes / alike;
    gigabytes_per_second = held_up ? slowest : alike;
    if (held_up) bytes = whole;
  }
  const double us = hosts.cost.link.latency_us + bytes * 1e-3 / gigabytes_per_second;
  if (us <= all.bound_us) return;
  all.bound_us = us;
  all.bound_words =
      fmt::format("{:.0f} bytes into a host or out of it at {:.3g} GB/s, after {:.3g} us ({})",
                  bytes, gigabytes_per_second, hosts.cost.link.latency_us, origin_of(inputs));
}

/// The shares that ranks own in a weighted exchange, and the reason for them.
std::string weights_in_words(const Request& request, const PlannerInputs& inputs) {
  if (request.shape.weights.empty()) return {};
  std::string text = fmt::format("{} by rank, ", fmt::join(request.shape.weights, ","));
  const Hosts& hosts = inputs.hosts;
  if (inputs.places != nullptr &&
      request.shape.weights == weights_on(inputs, request.shape.rank_count))
    return text + "as the links of the " + inputs.places->source + " say";
  if (hosts.rates.empty() || request.shape.weights != weights_for(hosts))
    return text + "as TUTTI_WEIGHTS says";
  std::string slow;
  for (const HostRate& rate : hosts.rates) {
    if (rate.gigabytes_per_second < hosts.cost.link.gigabytes_per_second) {
      slow += fmt::format("{}{} carries {:.3g} GB/s", slow.empty() ? "" : ", ", rate.name,
                          rate.gigabytes_per_second);
    }
  }
  return text + fmt::format("as {} where others carry {:.3g} (measured by tutti tune)", slow,
                            hosts.cost.link.gigabytes_per_second);
}

}  // namespace

Result<CallExplanation> explain(const Request& request, const PlannerInputs& inputs) {
  TUTTI_TRY(auto list, candidates(request, inputs));
  TUTTI_TRY(CallExplanation all, explained(std::move(list), request.shape.collective));
  find_bound(request, inputs, all);
  all.weights_words = weights_in_words(request, inputs);
  if (inputs.places != nullptr) all.links_from = inputs.places->source;
  if (!request.mapped && some_share_memory(inputs.hosts.of)) {
    Request mapped = request;
    mapped.mapped = true;
    all.add_faster("memory that peers can map (mem_alloc, register_memory)",
                   candidates(mapped, inputs));
  }
  if (request.contract == Contract::kDeterministic && reduces(request.shape.collective)) {
    Request relaxed = request;
    relaxed.contract = Contract::kRelaxed;
    all.add_faster("the relaxed contract", candidates(relaxed, inputs));
  }
  if (inputs.table == nullptr && origin_of(inputs) == "assumed")
    all.to_be_faster.emplace_back(
        "nothing was measured here: `tutti tune` makes a table that comes before rules and "
        "estimates");
  return all;
}

std::string to_text(const CallExplanation& explanation, const Request& request,
                    std::string_view heading) {
  std::string text = wrapped(heading, 2) + "\n";
  text += fmt::format("{:>2} {:<18} {:>5} {:>8} {:>7} {:>6}  {:<9}  {}\n", "", "way", "lanes", "us",
                      "busbw", "%bound", "from", "why");
  const double factor = bus_factor(request.shape.collective, request.shape.rank_count);
  std::size_t number = 0;
  for (const ExplainedWay& way : explanation.ways) {
    const Candidate& candidate = way.candidate;
    const bool refused = !candidate.refused.empty();
    const bool timed = !refused && candidate.microseconds > 0;
    std::string row =
        fmt::format("{:>2} {:<18} {:>5} ", refused ? "-" : fmt::format("{}", ++number),
                    candidate.name(), candidate.lanes);
    if (timed)
      row += fmt::format(
          "{:>8} {:>7.2f} {:>6}", us_text(candidate.microseconds),
          1e-3 * factor * static_cast<double>(request.bytes) / candidate.microseconds,
          is_shown(explanation.bound_us)
              ? fmt::format("{:.1f}", 100 * explanation.bound_us / candidate.microseconds)
              : "-");
    row.resize(std::max<std::size_t>(row.size(), kWhy - 2), ' ');
    row += fmt::format("{:<9}  ", refused ? "" : to_string(candidate.evidence));
    text += wrapped(row + (number == 1 && !refused ? "taken" : way.why), kWhy + 9);
  }
  constexpr std::string_view kBecause[] = {", which is forced", ", as measured here",
                                           ", by a rule that was measured on 2 CPUs", ""};
  const Candidate& taken = explanation.taken();
  text += "\n";
  text += wrapped(
      fmt::format("Taken: {}{}{}.", taken.name(),
                  kBecause[static_cast<std::size_t>(taken.evidence)],
                  taken.microseconds > 0
                      ? fmt::format(": {} us{}", us_text(taken.microseconds),
                                    taken.evidence == Evidence::kTuned ? "" : " by estimate")
                      : ""),
      2);
  text += wrapped(fmt::format("Bound: {}: {}.",
                              is_shown(explanation.bound_us) ? us_text(explanation.bound_us) + " us"
                                                             : kNotShown,
                              explanation.bound_words),
                  2);
  if (!explanation.links_from.empty())
    text += wrapped("Links from: " + explanation.links_from + ".", 2);
  if (!explanation.weights_words.empty())
    text += wrapped("Weights: " + explanation.weights_words + ".", 2);
  if (!explanation.to_be_faster.empty()) {
    text += wrapped(fmt::format("To be faster: {}.", fmt::join(explanation.to_be_faster, "; ")), 2);
  }
  return text;
}

}  // namespace tutti::planner
