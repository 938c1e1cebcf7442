#include "planner/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/structure.h"
#include "planner/override.h"
#include "planner/place_costs.h"

namespace tutti::planner {
namespace {

std::size_t lanes_of(const Algorithm& algorithm, const plan::Shape& shape) {
  return build(algorithm, shape, Rank{0}).lanes.size();
}

/// Lanes of the algorithms that apply only with these weights or trees: they are there to be used.
std::size_t lanes_for_links(const plan::Shape& shape) {
  if (shape.weights.empty() && shape.trees.empty()) return 1;
  plan::Shape plain = shape;
  plain.weights.clear();
  plain.trees.clear();
  std::size_t most = 1;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != shape.collective) continue;
    if (algorithm->applies(shape) && !algorithm->applies(plain))
      most = std::max(most, lanes_of(*algorithm, shape));
  }
  return most;
}

/// Why an algorithm can't be taken on any machine; empty: it can.
std::string refusal(const Algorithm& algorithm, const Request& request) {
  const plan::Shape& shape = request.shape;
  if (!algorithm.applies(shape)) {
    const auto& groups = shape.groups.sizes;
    return fmt::format("does not apply to {} ranks in groups of {}, {} weights, {} trees",
                       shape.rank_count,
                       groups.empty() ? "1" : fmt::format("{}", fmt::join(groups, ",")),
                       shape.weights.empty() ? "without" : "with these",
                       shape.trees.empty() ? "without" : "with these");
  }
  if (request.contract == Contract::kDeterministic &&
      algorithm.contract(shape) == Contract::kRelaxed) {
    return fmt::format(
        "with {} ranks keeps the relaxed contract only; set TUTTI_CONTRACT=relaxed "
        "to allow it",
        shape.rank_count);
  }
  if (!request.wire.is_plain() && plan::sends_partials(build(algorithm, shape)))
    return fmt::format("sends partial sums, which {} would round at every hop",
                       to_string(request.wire));
  return {};
}

/// The time of a way of `ranges[at]` for so many bytes: between two ends on the straight line of
/// logarithms, as times are constant at first and proportional later; beyond the last in
/// proportion.
double interpolated(const std::vector<Range>& ranges, std::size_t at, const Way& way,
                    std::size_t bytes) {
  const Range& range = ranges[at];
  const auto size = static_cast<double>(std::max<std::size_t>(1, bytes));
  const auto end = static_cast<double>(std::max<std::size_t>(1, range.up_to));
  if (bytes > range.up_to) return way.microseconds * size / end;
  if (at == 0 || way.microseconds <= 0) return way.microseconds;
  for (const Way& before : ranges[at - 1].ways) {
    if (before.name != way.name || before.lanes != way.lanes || before.microseconds <= 0) continue;
    const auto begin = static_cast<double>(std::max<std::size_t>(1, ranges[at - 1].up_to));
    const double share = std::log(size / begin) / std::log(end / begin);
    return before.microseconds * std::pow(way.microseconds / before.microseconds, share);
  }
  return way.microseconds;
}

std::vector<Way> ways_of(const std::vector<Range>& ranges, std::size_t bytes) {
  if (ranges.empty()) return {};
  std::size_t at = 0;
  while (at + 1 < ranges.size() && bytes > ranges[at].up_to) ++at;
  std::vector<Way> ways = ranges[at].ways;
  for (Way& way : ways) way.microseconds = interpolated(ranges, at, way, bytes);
  if (std::ranges::all_of(ways, [](const Way& way) { return way.microseconds > 0; }))
    std::ranges::stable_sort(ways, {}, &Way::microseconds);
  return ways;
}

std::vector<Range> rules_for(const Request& request, const PlannerInputs& inputs) {
  const Hosts& hosts = inputs.hosts;
  // Where blocks differ in size, ranks that estimate would not all find the same.
  return hosts.of.empty() || request.vector_variant
             ? built_in_ranges(request.shape.collective, bool(request.mapped),
                               request.shape.rank_count, inputs.usable_cpus)
             : network_ranges(hosts.of, hosts.cost);
}

// The algorithm whose plan copy engines run: it has one round.
constexpr std::string_view kCopiedAlgorithm = "direct";

// A lane goes on to the next tile when it is done with one. Between hosts that leaves the network
// idle while a tile is reduced; so there are two.
constexpr std::uint32_t kNetworkLanes = 2;

/// What is estimated is put in order once for all sizes of a class, so that few are simulated.
std::size_t size_class(std::size_t bytes) {
  return std::bit_ceil(std::clamp<std::size_t>(bytes, 64, std::size_t{1} << 40));
}

/// For ranks on CPUs, on one host or several.
class HostPlanCosts final : public PlanCosts {
 public:
  explicit HostPlanCosts(const PlannerInputs& inputs) : inputs_(inputs) {}

  std::string_view overrides() const override { return inputs_.overrides; }

  std::vector<Way> ways(Evidence evidence, const Request& request) const override {
    const std::size_t bytes = request.bytes;
    if (evidence == Evidence::kTuned) {
      // Sizes of blocks that differ are not known to all: what is measured by size says nothing.
      if (inputs_.table == nullptr || request.vector_variant) return {};
      return ways_of(inputs_.table->of(request.shape.collective, bool(request.mapped)), bytes);
    }
    std::vector<Way> rules = ways_of(rules_for(request, inputs_), bytes);
    const bool measured = request.shape.rank_count <= kBuiltInRanks || request.vector_variant;
    if (!measured) std::erase_if(rules, [](const Way& way) { return way.name != kEagerName; });
    for (Way& way : rules) way.microseconds = 0;
    return rules;
  }

  std::optional<std::string> eager_refusal(const Request& request) const override {
    if (request.vector_variant) return "blocks that differ in size take a plan";
    if (!request.wire.is_plain())
      return fmt::format("packets are not encoded; {} takes a plan", to_string(request.wire));
    if (request.bytes <= inputs_.packet_bytes) return "";
    return fmt::format("a packet takes at most {} bytes", inputs_.packet_bytes);
  }

  std::uint32_t lanes(const Algorithm& algorithm, const Request& request, std::uint32_t by_user,
                      std::uint32_t by_source) const override {
    if (by_user != 0) return by_user;
    if (inputs_.lanes != 0) return inputs_.lanes;
    if (by_source != 0) return by_source;
    if (inputs_.hosts.of.empty() || !algorithm.applies(request.shape)) return 1;
    const auto own = static_cast<std::uint32_t>(lanes_of(algorithm, request.shape));
    return std::max(1U, kNetworkLanes / own);
  }

  std::string refusal(const Algorithm& algorithm, std::uint32_t repeated,
                      const Request& request) const override {
    const std::size_t lanes = lanes_of(algorithm, request.shape) * repeated;
    if (lanes > kMostLanes)
      return fmt::format("takes {} lanes; a communicator has at most {}", lanes, kMostLanes);
    if (inputs_.most_lanes != 0 && lanes > inputs_.most_lanes) {
      return fmt::format(
          "takes {} lanes, this communicator has {}; force it by TUTTI_ALGORITHM "
          "to have as many",
          lanes, inputs_.most_lanes);
    }
    if (!request.vector_variant) return {};
    const auto made = prepare(recipe_of(algorithm, request, inputs_, repeated));
    return made ? std::string{} : made.error().what;
  }

  std::optional<double> estimate_us(const Candidate& candidate,
                                    const Request& request) const override {
    Request asked = request;
    asked.bytes = size_class(request.bytes);
    if (candidate.eager) return estimate_eager_us(asked, inputs_);
    return planner::estimate_us(*candidate.algorithm, asked, inputs_);
  }

  double rough_us(const Candidate& candidate, const Request& request) const override {
    Request asked = request;
    asked.bytes = size_class(request.bytes);
    return planner::rough_us(*candidate.algorithm, asked, inputs_);
  }

 private:
  const PlannerInputs& inputs_;
};

/// Makes the list: first what the user, a table and the rules say, then all the rest.
class Listing {
 public:
  Listing(const Request& request, const PlanCosts& costs, Override algorithm_override)
      : request_(request), costs_(costs), override_(std::move(algorithm_override)) {}

  /// Without times of what is estimated, which stands in the order of the registry. Ends with the
  /// first one for which `enough` is true.
  std::vector<Candidate> make(bool (*enough)(const Candidate&)) {
    enough_ = enough;
    if (!override_.forced.empty()) add(override_.forced, 0, 0, Evidence::kForced);
    for (const Evidence evidence : {Evidence::kTuned, Evidence::kRule}) {
      for (const Way& way : costs_.ways(evidence, request_))
        add(way.name, way.lanes, way.microseconds, evidence);
    }
    add(kEagerName, 1, 0, Evidence::kEstimated);
    add(kMulticastName, 0, 0, Evidence::kEstimated);
    add(kCopyEnginesName, 1, 0, Evidence::kEstimated);
    for (const Algorithm* algorithm : algorithms()) {
      if (algorithm->collective == request_.shape.collective)
        add(algorithm->name, 0, 0, Evidence::kEstimated);
    }
    std::stable_partition(list_.begin(), list_.end(),
                          [](const Candidate& one) { return one.refused.empty(); });
    return std::move(list_);
  }

 private:
  void add(std::string_view name, std::uint32_t lanes, double microseconds, Evidence evidence) {
    if (!list_.empty() && enough_(list_.back())) return;
    Candidate candidate;
    candidate.eager = name == kEagerName;
    candidate.multicast = name == kMulticastName;
    candidate.copy_engines = name == kCopyEnginesName;
    candidate.microseconds = microseconds;
    candidate.evidence = evidence;
    if (!candidate.eager) {
      candidate.algorithm =
          find_algorithm(request_.shape.collective, candidate.multicast      ? stood_for()
                                                    : candidate.copy_engines ? kCopiedAlgorithm
                                                                             : name);
      if (candidate.algorithm == nullptr) return;  // The table is from elsewhere.
      const std::uint32_t by_user = evidence == Evidence::kForced ? override_.lanes : 0;
      if (!candidate.copy_engines)
        candidate.lanes = costs_.lanes(*candidate.algorithm, request_, by_user, lanes);
    }
    const auto own_refusal = candidate.eager          ? costs_.eager_refusal(request_)
                             : candidate.multicast    ? costs_.multicast_refusal(request_)
                             : candidate.copy_engines ? costs_.copy_engines_refusal(request_)
                                                      : std::optional<std::string>("");
    if (!own_refusal) return;
    // The registry adds what no source named; a table may name an algorithm with several lanes.
    for (const Candidate& other : list_) {
      if (other.name() == name && (evidence != Evidence::kTuned || other.lanes == candidate.lanes))
        return;
    }
    // Packets, multicast memory and copy engines are taken as far as they go; the rest goes as
    // ever.
    const bool goes_on = override_.forced == kEagerName || override_.forced == kMulticastName ||
                         override_.forced == kCopyEnginesName;
    const bool is_plan = !candidate.eager && !candidate.multicast && !candidate.copy_engines;
    if (!override_.forced.empty() && name != override_.forced && !goes_on)
      candidate.refused = fmt::format("{} is forced", override_.forced);
    else if (override_.forced.empty() && override_.forbids(name))
      candidate.refused = "is forbidden";
    else if (candidate.eager || candidate.multicast ||
             (candidate.copy_engines && name != override_.forced))
      candidate.refused = *own_refusal;
    else
      candidate.refused = refusal(*candidate.algorithm, request_);
    if (candidate.refused.empty() && is_plan)
      candidate.refused = costs_.refusal(*candidate.algorithm, candidate.lanes, request_);
    list_.push_back(std::move(candidate));
  }

  /// The algorithm that calls over multicast memory stand for.
  std::string_view stood_for() const {
    return request_.shape.collective == Collective::kAllReduce ? "two_shot" : "direct";
  }

  const Request& request_;
  const PlanCosts& costs_;
  const Override override_;
  bool (*enough_)(const Candidate&) = nullptr;
  std::vector<Candidate> list_;
};

// How much of a list is made.
bool never(const Candidate&) { return false; }
bool at_first(const Candidate& candidate) { return candidate.refused.empty(); }
bool is_plan(const Candidate& candidate) {
  return candidate.refused.empty() && !candidate.eager && !candidate.multicast;
}
/// Estimates have to be compared.
bool at_first_plan(const Candidate& candidate) {
  return is_plan(candidate) && candidate.evidence != Evidence::kEstimated;
}

Result<std::vector<Candidate>> listed(const Request& request, const PlanCosts& costs,
                                      bool (*enough)(const Candidate&)) {
  const Collective collective = request.shape.collective;
  TUTTI_TRY(Override algorithm_override,
            override_for(collective, costs.overrides(), "TUTTI_ALGORITHM"));
  if (!request.algorithm_override.empty()) {
    TUTTI_TRY(Override own, override_for(collective, request.algorithm_override, "algorithm"));
    if (own.forced.empty() && !own.forbids(algorithm_override.forced)) {
      own.forced = algorithm_override.forced;
      own.lanes = algorithm_override.lanes;
    }
    own.forbidden.insert(own.forbidden.end(), algorithm_override.forbidden.begin(),
                         algorithm_override.forbidden.end());
    algorithm_override = std::move(own);
  }
  return Listing(request, costs, std::move(algorithm_override)).make(enough);
}

/// Puts in times, and in order what estimates decide.
void estimate(std::vector<Candidate>& list, const Request& request, const PlanCosts& costs) {
  std::vector<Candidate*> too_large;
  for (Candidate& candidate : list) {
    if (!candidate.refused.empty() || candidate.microseconds > 0) continue;
    if (const auto us = costs.estimate_us(candidate, request))
      candidate.microseconds = *us;
    else if (candidate.evidence == Evidence::kEstimated)
      too_large.push_back(&candidate);
  }
  // Rough times and estimates can't be compared, so rough ones are for calls that have no others.
  const auto large = std::ranges::count_if(too_large, [](const Candidate* one) {
    return is_plan(*one);  // Multicast memory may be too large to estimate as well.
  });
  const bool none_known = std::ranges::count_if(list, is_plan) == large;
  for (Candidate* candidate : too_large) {
    if (none_known)
      candidate->microseconds = costs.rough_us(*candidate, request);
    else
      candidate->refused =
          fmt::format("{} ranks take too many steps to estimate it", request.shape.rank_count);
  }
  std::ranges::stable_sort(list, {}, [](const Candidate& candidate) {
    const bool refused = !candidate.refused.empty();
    const bool estimated = !refused && candidate.evidence == Evidence::kEstimated;
    return std::tuple(refused, refused ? Evidence::kForced : candidate.evidence,
                      estimated ? candidate.microseconds : 0);
  });
}

Error nothing_left(const std::vector<Candidate>& list, const Request& request) {
  std::string reasons;
  for (const Candidate& candidate : list) {
    if (candidate.eager) continue;
    const std::string reason = fmt::format("{} {}", candidate.name(), candidate.refused);
    if (candidate.evidence == Evidence::kForced)
      return {Code::kInvalidArgument,
              fmt::format("{}: {}",
                          request.algorithm_override.empty() ? "TUTTI_ALGORITHM" : "algorithm",
                          reason)};
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return {Code::kInvalidArgument,
          fmt::format("TUTTI_ALGORITHM: there is nothing left to choose for {}: {}",
                      to_string(request.shape.collective), reasons)};
}

}  // namespace

std::string_view to_string(Evidence evidence) {
  constexpr std::string_view kWords[] = {"forced", "tuned", "rule", "estimated"};
  return kWords[static_cast<std::size_t>(evidence)];
}

std::string_view Candidate::name() const {
  if (copy_engines) return kCopyEnginesName;
  return eager ? kEagerName : multicast ? kMulticastName : algorithm->name;
}

Recipe recipe_of(const Algorithm& algorithm, const Request& request, const PlannerInputs& inputs,
                 std::uint32_t lanes) {
  return {.algorithm = &algorithm,
          .shape = request.shape,
          .direct = request.mapped,
          .read = request.read,
          .shared = request.shared,
          .multicast = true,
          .hosts = request.mapped ? inputs.hosts.of : std::vector<int>{},
          .lanes = lanes,
          .vector_variant = request.vector_variant};
}

Result<std::vector<Candidate>> candidates(const Request& request, const PlanCosts& costs) {
  TUTTI_TRY(auto list, listed(request, costs, never));
  estimate(list, request, costs);
  return list;
}

Result<std::vector<Candidate>> candidates(const Request& request, const PlannerInputs& inputs) {
  return candidates(request, HostPlanCosts(inputs));
}

Result<std::vector<Candidate>> usable_plans(const Request& request, const PlanCosts& costs) {
  TUTTI_TRY(auto list, listed(request, costs, at_first_plan));
  std::erase_if(list, [](const Candidate& candidate) { return candidate.eager; });
  // Where blocks differ in size, each rank knows other bytes, and estimates would put plans in
  // another order on each. So the order of the registry stays.
  const auto first = std::ranges::find_if(list, is_plan);
  if (first == list.end()) return nothing_left(list, request);
  const bool guess = !request.vector_variant && first->evidence == Evidence::kEstimated;
  if (guess) estimate(list, request, costs);
  std::vector<Candidate> usable;
  std::ranges::copy_if(list, std::back_inserter(usable),
                       [](const Candidate& one) { return one.refused.empty(); });
  return usable;
}

Result<std::vector<Candidate>> contenders(const Request& request, const PlannerInputs& inputs) {
  TUTTI_TRY(auto usable, usable_plans(request, HostPlanCosts(inputs)));
  const bool guess = !request.vector_variant && usable.front().evidence == Evidence::kEstimated;
  usable.resize(guess ? std::min(usable.size(), kMostTried) : 1);
  return usable;
}

Result<Recipe> choose(const Request& request, const PlannerInputs& inputs) {
  TUTTI_TRY(const auto usable, contenders(request, inputs));
  return recipe_of(*usable.front().algorithm, request, inputs, usable.front().lanes);
}

Result<std::size_t> eager_limit_bytes(Request request, const PlannerInputs& inputs) {
  // The ends of ranges are where rules change. What is tuned is interpolated, so it changes between
  // them as well: seen in steps of a quarter.
  std::vector<std::size_t> sizes{1, inputs.packet_bytes};
  const Collective collective = request.shape.collective;
  for (const Range& range : rules_for(request, inputs)) sizes.push_back(range.up_to);
  if (inputs.table != nullptr) {
    for (const Range& range : inputs.table->of(collective, bool(request.mapped)))
      sizes.push_back(range.up_to);
    for (std::size_t bytes = 8; bytes < inputs.packet_bytes; bytes += bytes / 4)
      sizes.push_back(bytes);
  }
  std::ranges::sort(sizes);
  std::size_t limit = 0;
  for (const std::size_t bytes : sizes) {
    if (bytes > inputs.packet_bytes) break;
    request.bytes = bytes;
    TUTTI_TRY(const auto list, listed(request, HostPlanCosts(inputs), at_first));
    const bool eager = std::ranges::any_of(list, [](const Candidate& candidate) {
      return candidate.eager && candidate.refused.empty() &&
             candidate.evidence != Evidence::kEstimated;
    });
    if (eager) limit = bytes;
  }
  return limit;
}

Result<std::uint32_t> lanes_needed(int rank_count, const Settings& settings,
                                   const PlannerInputs& inputs) {
  std::size_t most = 1;
  for (int i = 0; i < kCollectiveCount; ++i) {
    Request request;
    request.contract = settings.contract;
    request.shape = with_trees(shape_of(static_cast<Collective>(i), rank_count, 0, settings),
                               request.contract, inputs);
    most = std::max(most, lanes_for_links(request.shape));
    for (const bool mapped : {false, true}) {
      request.mapped = mapped;
      std::vector<std::size_t> sizes{std::size_t{1} << 30};
      if (inputs.table != nullptr) {
        for (const Range& range : inputs.table->of(request.shape.collective, mapped))
          sizes.push_back(range.up_to);
      }
      for (const std::size_t bytes : sizes) {
        request.bytes = bytes;
        TUTTI_TRY(const auto list, listed(request, HostPlanCosts(inputs), at_first_plan));
        const auto first = std::ranges::find_if(list, is_plan);
        if (first == list.end()) return nothing_left(list, request);
        const bool estimated = first->evidence == Evidence::kEstimated;
        const std::size_t lanes = estimated ? 1 : lanes_of(*first->algorithm, request.shape);
        most = std::max(most, lanes * first->lanes);
      }
    }
  }
  return static_cast<std::uint32_t>(most);
}

}  // namespace tutti::planner
