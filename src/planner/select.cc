#include "planner/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <mutex>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/chunks.h"
#include "plan/estimate.h"
#include "planner/wish.h"

namespace tutti::planner {
namespace {

// A wait costs more where the rank waited for has no CPU: a switch, and a share of the others'
// turns. Measured with 4 and 8 ranks on 2 CPUs, 8 bytes: 3 and 8 us.
constexpr double kSwitchUs = 1.5;
// Of messages and tiles that are simulated together.
constexpr std::size_t kMostEvents = std::size_t{1} << 18;

const HostCosts& costs_of(const Knowledge& knowledge) {
  return knowledge.table != nullptr ? knowledge.table->costs : knowledge.costs;
}

double hop_us(const Request& request, const Knowledge& knowledge) {
  const double turns =
      static_cast<double>(request.shape.rank_count) / std::max(1, knowledge.usable_cpus);
  const HostCosts& costs = costs_of(knowledge);
  return costs.link.latency_us + (turns > 1 ? kSwitchUs * turns : 0);
}

plan::CostModel cost_model(const Request& request, const Knowledge& knowledge) {
  const HostCosts& costs = costs_of(knowledge);
  const LinkCost link{hop_us(request, knowledge), costs.link.gigabytes_per_second};
  plan::CostModel model;
  model.link = [link](Rank, Rank) { return plan::Path(link); };
  const auto cpus = static_cast<std::uint32_t>(
      std::clamp(knowledge.usable_cpus, 1, std::max(1, request.shape.rank_count)));
  for (std::uint32_t i = 0; i < cpus; ++i) {
    plan::Resource cpu;
    cpu.gigabytes_per_second = costs.reduce_gigabytes_per_second;
    model.resources.push_back(cpu);
  }
  model.compute = [cpus](Rank rank) {
    return plan::Use{static_cast<std::uint32_t>(rank.value) % cpus, 1};
  };
  return model;
}

std::size_t lanes_of(const Algorithm& algorithm, const plan::Shape& shape) {
  return build(algorithm, shape, Rank{0}).lanes.size();
}

/// Why an algorithm can't be taken; empty: it can.
std::string refusal(const Algorithm& algorithm, std::uint32_t repeated, const Request& request,
                    const Knowledge& knowledge) {
  const plan::Shape& shape = request.shape;
  if (!algorithm.applies(shape)) {
    const auto& groups = shape.groups.sizes;
    return fmt::format("does not apply to {} ranks in groups of {}, {} weights", shape.rank_count,
                       groups.empty() ? "1" : fmt::format("{}", fmt::join(groups, ",")),
                       shape.weights.empty() ? "without" : "with these");
  }
  if (request.contract == Contract::kDeterministic &&
      algorithm.contract(shape) == Contract::kRelaxed) {
    return fmt::format(
        "with {} ranks keeps the relaxed contract only; set TUTTI_CONTRACT=relaxed "
        "to allow it",
        shape.rank_count);
  }
  const std::size_t lanes = lanes_of(algorithm, shape) * repeated;
  if (knowledge.most_lanes != 0 && lanes > knowledge.most_lanes) {
    return fmt::format(
        "takes {} lanes, this communicator has {}; force it by TUTTI_ALGORITHM "
        "to have as many",
        lanes, knowledge.most_lanes);
  }
  if (!request.uneven) return {};
  const auto made = prepare(recipe_of(algorithm, request, repeated));
  return made ? std::string{} : made.error().what;
}

std::string packet_refusal(const Request& request, const Knowledge& knowledge) {
  if (request.uneven) return "blocks that differ in size take a plan";
  if (request.bytes <= knowledge.packet_bytes) return {};
  return fmt::format("a packet takes at most {} bytes", knowledge.packet_bytes);
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
  const bool measured =
      std::all_of(ways.begin(), ways.end(), [](const Way& way) { return way.microseconds > 0; });
  if (measured) {
    std::stable_sort(ways.begin(), ways.end(),
                     [](const Way& a, const Way& b) { return a.microseconds < b.microseconds; });
  }
  return ways;
}

/// Makes the list: first what the wishes, the table and the rules say, then all the rest.
class Listing {
 public:
  Listing(const Request& request, const Knowledge& knowledge, Wish wish)
      : request_(request), knowledge_(knowledge), wish_(std::move(wish)) {}

  /// Without times of what is estimated, which stands in the order of the registry.
  std::vector<Candidate> make() {
    const Collective collective = request_.shape.collective;
    if (!wish_.forced.empty()) add(wish_.forced, 1, 0, Evidence::kForced);
    // Sizes of blocks that differ are not known to all: what is measured by size says nothing.
    if (knowledge_.table != nullptr && !request_.uneven) {
      for (const Way& way :
           ways_of(knowledge_.table->of(collective, request_.mapped), request_.bytes))
        add(way.name, way.lanes, way.microseconds, Evidence::kTuned);
    }
    const TuningTable rules = built_in_table(request_.shape.rank_count);
    for (const Way& way : ways_of(rules.of(collective, request_.mapped), request_.bytes)) {
      const bool measured = request_.shape.rank_count <= kBuiltInRanks || request_.uneven;
      if (measured || way.name == kPacketWay) add(way.name, way.lanes, 0, Evidence::kRule);
    }
    add(kPacketWay, 1, 0, Evidence::kEstimated);
    for (const Algorithm* algorithm : algorithms()) {
      if (algorithm->collective == collective) add(algorithm->name, 1, 0, Evidence::kEstimated);
    }
    std::stable_partition(list_.begin(), list_.end(),
                          [](const Candidate& candidate) { return candidate.refused.empty(); });
    return std::move(list_);
  }

 private:
  void add(std::string_view name, std::uint32_t lanes, double microseconds, Evidence evidence) {
    Candidate candidate;
    candidate.packet = name == kPacketWay;
    candidate.lanes = candidate.packet ? 1 : knowledge_.lanes != 0 ? knowledge_.lanes : lanes;
    candidate.microseconds = microseconds;
    candidate.evidence = evidence;
    if (!candidate.packet) {
      candidate.algorithm = find_algorithm(request_.shape.collective, name);
      if (candidate.algorithm == nullptr) return;  // Of a table from elsewhere.
    }
    // Of the registry only what nobody spoke of; of a table every number of lanes.
    for (const Candidate& other : list_) {
      if (other.name() == name && (evidence != Evidence::kTuned || other.lanes == candidate.lanes))
        return;
    }
    // Packets are taken as far as they go; what is larger goes as ever.
    if (!wish_.forced.empty() && name != wish_.forced && wish_.forced != kPacketWay)
      candidate.refused = fmt::format("{} is forced", wish_.forced);
    else if (wish_.forced.empty() && wish_.forbids(name))
      candidate.refused = "is forbidden";
    else
      candidate.refused =
          candidate.packet ? packet_refusal(request_, knowledge_)
                           : refusal(*candidate.algorithm, candidate.lanes, request_, knowledge_);
    list_.push_back(std::move(candidate));
  }

  const Request& request_;
  const Knowledge& knowledge_;
  const Wish wish_;
  std::vector<Candidate> list_;
};

Result<std::vector<Candidate>> listed(const Request& request, const Knowledge& knowledge) {
  const Collective collective = request.shape.collective;
  TUTTI_TRY(Wish wish, wish_for(collective, knowledge.wishes, "TUTTI_ALGORITHM"));
  if (!request.wish.empty()) {
    TUTTI_TRY(Wish own, wish_for(collective, request.wish, "algorithm"));
    if (own.forced.empty() && !own.forbids(wish.forced)) own.forced = wish.forced;
    own.forbidden.insert(own.forbidden.end(), wish.forbidden.begin(), wish.forbidden.end());
    wish = std::move(own);
  }
  return Listing(request, knowledge, std::move(wish)).make();
}

/// What is estimated is put in order once for all sizes of a class, so that few are simulated.
std::size_t size_class(std::size_t bytes) {
  return std::bit_ceil(std::clamp<std::size_t>(bytes, 64, std::size_t{1} << 40));
}

/// Estimates that were made in this process: by all that they depend on.
using EstimateKey = std::tuple<const Algorithm*, int, int, std::vector<int>, std::vector<int>, bool,
                               bool, std::size_t, int, double, double, double, std::size_t, int>;
struct Estimates {
  std::mutex mutex;
  std::map<EstimateKey, std::optional<double>> known;
};
constexpr std::size_t kMostKnown = 4096;

std::optional<double> known_estimate_us(const Algorithm& algorithm, const Request& request,
                                        const Knowledge& knowledge) {
  static auto* estimates = new Estimates();  // Threads may still ask when the process ends.
  const plan::Shape& shape = request.shape;
  const HostCosts& costs = costs_of(knowledge);
  const EstimateKey key{&algorithm,
                        shape.rank_count,
                        shape.root,
                        shape.groups.sizes,
                        shape.weights,
                        request.mapped,
                        request.uneven,
                        request.bytes,
                        knowledge.usable_cpus,
                        costs.link.latency_us,
                        costs.link.gigabytes_per_second,
                        costs.reduce_gigabytes_per_second,
                        knowledge.slot_bytes,
                        knowledge.slots};
  {
    const std::lock_guard lock(estimates->mutex);
    if (const auto found = estimates->known.find(key); found != estimates->known.end())
      return found->second;
  }
  const auto us = estimate_us(algorithm, request, knowledge);
  const std::lock_guard lock(estimates->mutex);
  if (estimates->known.size() >= kMostKnown) estimates->known.clear();
  estimates->known[key] = us;
  return us;
}

/// Puts in times, and in order what estimates decide.
void estimate(std::vector<Candidate>& list, Request request, const Knowledge& knowledge) {
  request.bytes = size_class(request.bytes);
  for (Candidate& candidate : list) {
    if (!candidate.refused.empty() || candidate.microseconds > 0) continue;
    if (candidate.packet) {
      candidate.microseconds = estimate_packet_us(request, knowledge);
    } else if (const auto us = known_estimate_us(*candidate.algorithm, request, knowledge)) {
      candidate.microseconds = *us;
    } else if (candidate.evidence == Evidence::kEstimated) {
      candidate.refused =
          fmt::format("{} ranks take too many steps to estimate it", request.shape.rank_count);
    }
  }
  std::stable_sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
    const bool no_a = !a.refused.empty(), no_b = !b.refused.empty();
    if (no_a != no_b) return no_b;
    if (no_a || a.evidence != b.evidence || a.evidence != Evidence::kEstimated)
      return !no_a && a.evidence < b.evidence;
    return a.microseconds < b.microseconds;
  });
}

}  // namespace

namespace {

bool is_plan(const Candidate& candidate) { return candidate.refused.empty() && !candidate.packet; }

Error nothing_left(const std::vector<Candidate>& list, const Request& request) {
  std::string reasons;
  for (const Candidate& candidate : list) {
    if (candidate.packet) continue;
    const std::string reason = fmt::format("{} {}", candidate.name(), candidate.refused);
    if (candidate.evidence == Evidence::kForced)
      return {
          Code::kInvalidArgument,
          fmt::format("{}: {}", request.wish.empty() ? "TUTTI_ALGORITHM" : "algorithm", reason)};
    reasons += (reasons.empty() ? "" : "; ") + reason;
  }
  return {Code::kInvalidArgument,
          fmt::format("TUTTI_ALGORITHM: there is nothing left to choose for {}: {}",
                      to_string(request.shape.collective), reasons)};
}

}  // namespace

std::string_view to_string(Evidence evidence) {
  switch (evidence) {
    case Evidence::kForced: return "forced";
    case Evidence::kTuned: return "tuned";
    case Evidence::kRule: return "rule";
    case Evidence::kEstimated: return "estimated";
  }
  return "";
}

std::string_view Candidate::name() const { return packet ? kPacketWay : algorithm->name; }

Recipe recipe_of(const Algorithm& algorithm, const Request& request, std::uint32_t lanes) {
  return {.algorithm = &algorithm,
          .shape = request.shape,
          .direct = request.mapped,
          .multicast = true,
          .lanes = lanes,
          .uneven = request.uneven};
}

Result<std::vector<Candidate>> candidates(const Request& request, const Knowledge& knowledge) {
  TUTTI_TRY(auto list, listed(request, knowledge));
  estimate(list, request, knowledge);
  return list;
}

std::optional<double> estimate_us(const Algorithm& algorithm, const Request& request,
                                  const Knowledge& knowledge) {
  const plan::Shape& shape = request.shape;
  const plan::RankPlan one = build(algorithm, shape, Rank{shape.rank_count / 2});
  std::size_t events = 0;
  for (const plan::Lane& lane : one.lanes) events += lane.steps.size() + lane.locations.size();
  events = std::max<std::size_t>(1, events * static_cast<std::size_t>(shape.rank_count));
  if (events > kMostEstimated) return std::nullopt;
  const auto made = prepare(recipe_of(algorithm, request, 1));
  if (!made) return std::nullopt;
  const plan::Plan& plan = (*made)->plan;
  const std::size_t blocks = std::max(plan::input_blocks(shape), plan::output_blocks(shape));
  const std::size_t block_bytes = request.bytes / blocks;
  // Fewer, larger tiles where there are too many to simulate.
  const std::size_t tiles = std::max<std::size_t>(1, kMostEvents / events);
  const std::size_t slot_bytes = std::max(knowledge.slot_bytes, block_bytes / plan.pieces / tiles);
  const plan::CostModel model = cost_model(request, knowledge);
  plan::Estimator estimator(plan, model, DataType::kFloat32, slot_bytes,
                            std::max(1, knowledge.slots));
  return estimator.run(std::max<std::size_t>(1, block_bytes / 4)).microseconds;
}

double estimate_packet_us(const Request& request, const Knowledge& knowledge) {
  const HostCosts& costs = costs_of(knowledge);
  const double n = request.shape.rank_count;
  const CollectiveTraits traits = traits_of(request.shape.collective);
  const auto bytes = static_cast<double>(request.bytes);
  // Of the larger of input and output: what a rank writes, and what it reads of all.
  const double given = bytes / (traits.output_each && !traits.input_each ? n : 1);
  const double read = traits.root_input                         ? given
                      : traits.input_each && traits.output_each ? given
                                                                : given * n;
  const double turns = std::max(1.0, n / std::max(1, knowledge.usable_cpus));
  const double moved = 2 * given + read;
  return hop_us(request, knowledge) + turns * moved * 1e-3 / costs.reduce_gigabytes_per_second;
}

Result<Recipe> choose(const Request& request, const Knowledge& knowledge) {
  TUTTI_TRY(auto list, listed(request, knowledge));
  auto found = std::find_if(list.begin(), list.end(), is_plan);
  if (found != list.end() && found->evidence == Evidence::kEstimated) {
    estimate(list, request, knowledge);
    found = std::find_if(list.begin(), list.end(), is_plan);
  }
  if (found != list.end()) return recipe_of(*found->algorithm, request, found->lanes);
  return nothing_left(list, request);
}

Result<std::size_t> packet_limit(Request request, const Knowledge& knowledge) {
  // Where packets stop is looked for among the ends of the ranges, and between them in steps of a
  // quarter.
  std::size_t limit = 0;
  for (std::size_t bytes = 1; bytes <= knowledge.packet_bytes; bytes += (bytes + 3) / 4) {
    request.bytes = bytes;
    TUTTI_TRY(const auto list, listed(request, knowledge));
    if (!list.front().packet || !list.front().refused.empty()) break;
    limit = bytes;
  }
  if (limit == 0) return limit;
  const TuningTable rules = built_in_table(request.shape.rank_count);
  for (const TuningTable* table : {knowledge.table, &rules}) {
    if (table == nullptr) continue;
    for (const Range& range : table->of(request.shape.collective, request.mapped)) {
      if (range.up_to <= limit || range.up_to > limit + (limit + 3) / 4) continue;
      request.bytes = range.up_to;
      TUTTI_TRY(const auto list, listed(request, knowledge));
      if (list.front().packet && list.front().refused.empty()) limit = range.up_to;
    }
  }
  return limit;
}

Result<std::uint32_t> lanes_needed(int rank_count, const Settings& settings,
                                   const Knowledge& knowledge) {
  std::size_t most = 1;
  for (int i = 0; i < kCollectiveCount; ++i) {
    Request request;
    request.shape = {static_cast<Collective>(i), rank_count, 0, std::max(settings.group_size, 1)};
    request.contract = settings.contract;
    for (const bool mapped : {false, true}) {
      request.mapped = mapped;
      std::vector<std::size_t> sizes{std::size_t{1} << 30};
      if (knowledge.table != nullptr) {
        for (const Range& range : knowledge.table->of(request.shape.collective, mapped))
          sizes.push_back(range.up_to);
      }
      for (const std::size_t bytes : sizes) {
        request.bytes = bytes;
        TUTTI_TRY(const auto list, listed(request, knowledge));
        const auto first = std::find_if(list.begin(), list.end(), is_plan);
        if (first == list.end()) return nothing_left(list, request);
        const bool repeated = first->evidence == Evidence::kEstimated;
        const std::size_t lanes = repeated ? 1 : lanes_of(*first->algorithm, request.shape);
        most = std::max(most, lanes * first->lanes);
      }
    }
  }
  return static_cast<std::uint32_t>(most);
}

}  // namespace tutti::planner
