// Every way of every collective, for `tutti tune`: algorithm by lanes by kind of buffers by size.
//
// For each size a first look at every way drops those that take kHopeless times as long as the best
// one. (Of that size alone: what is slow for few bytes may be the best for many.) The others are
// measured in turns, round after round, so that a disturbance of the machine disturbs all of them.
// A time is the slowest rank's. If every rank has a CPU, it is that of the fastest round, as only
// other work makes rounds longer. If ranks take turns on CPUs, and between hosts, waiting for each
// other is part of a call, and the median round counts.
//
// A rank of a host runs all lanes of a plan on one thread, so more of them gain nothing there.
// Between hosts they fill the network while others reduce: the best plans are measured with more
// and with fewer lanes too. Buffers that peers can map are measured wherever ranks share a host.
//
// Tiles are not measured: a tile fills a slot, and what slots fit a number of ranks holds for all
// sizes of messages (docs/decisions/0007-deep-rings.md).
#include <fmt/format.h>

#include <algorithm>

#include "algorithms/algorithm.h"
#include "comm/state.h"
#include "perf/sweep/buffer.h"
#include "tools/tune/tune.h"

namespace tutti::tools {
namespace {

constexpr double kHopeless = 3;         // Times the best, after a first look.
constexpr double kRunnerUp = 2;         // Times the best, to be in the table.
constexpr double kNear = 1.5;           // Times the best, to be measured with other lanes.
constexpr std::size_t kUsualLanes = 2;  // Between hosts, of a plan.
constexpr std::size_t kMostListed = 6;
constexpr int kMostCalls = 2000;

struct Contender {
  std::string_view name;
  std::string algorithm_override;  // The name with lanes, if these are to be said.
  std::uint32_t lanes = 1;
  bool usual = true;  // Else it is looked at if it does well with its usual lanes.
  bool deterministic = true;
  double first_us = 0;
  std::vector<double> rounds;
};

/// How often an algorithm's lanes are repeated; first what is usual.
std::vector<std::uint32_t> repeats(std::size_t own, const planner::PlannerInputs& inputs) {
  if (inputs.hosts.of.empty()) return {1};
  std::vector<std::uint32_t> all;
  for (const std::size_t lanes : {kUsualLanes, std::size_t{1}, kMostTunedLanes}) {
    const auto repeated = static_cast<std::uint32_t>(std::max<std::size_t>(1, lanes / own));
    const bool fits = all.empty() || own * repeated <= inputs.most_lanes;
    if (fits && std::ranges::find(all, repeated) == all.end()) all.push_back(repeated);
  }
  return all;
}

std::vector<Contender> contenders(const plan::Shape& shape, const planner::PlannerInputs& inputs) {
  std::vector<Contender> all;
  all.push_back({.name = planner::kEagerName,
                 .algorithm_override = std::string(planner::kEagerName),
                 .rounds = {}});
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != shape.collective || !algorithm->applies(shape)) continue;
    const std::size_t own = build(*algorithm, shape, Rank{0}).lanes.size();
    if (own > inputs.most_lanes) continue;
    bool usual = true;
    for (const std::uint32_t lanes : repeats(own, inputs)) {
      all.push_back({.name = algorithm->name,
                     .algorithm_override = fmt::format("{}:{}", algorithm->name, lanes),
                     .lanes = lanes,
                     .usual = usual,
                     .deterministic = algorithm->contract(shape) == Contract::kDeterministic,
                     .rounds = {}});
      usual = false;
    }
  }
  return all;
}

/// The ways of a size, best first: the best few, and the best one that keeps every contract.
std::vector<planner::Way> ranked(const std::vector<Contender*>& measured, bool fastest_counts) {
  std::vector<std::pair<double, const Contender*>> order;
  for (const Contender* contender : measured) {
    const auto& rounds = contender->rounds;
    const double us =
        fastest_counts ? *std::min_element(rounds.begin(), rounds.end()) : perf::median(rounds);
    order.emplace_back(us, contender);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<planner::Way> ways;
  bool deterministic = false;
  for (const auto& [us, contender] : order) {
    const bool near = ways.size() < kMostListed && us <= kRunnerUp * order.front().first;
    // A plan has to be there as well: packets are not for every call.
    const bool needed =
        contender->deterministic && !deterministic && contender->name != planner::kEagerName;
    if (near || needed) ways.push_back({std::string(contender->name), contender->lanes, us});
    deterministic = deterministic || needed;
  }
  return ways;
}

/// One list of a table: sizes of one collective with one kind of buffers.
class List {
 public:
  List(Communicator& comm, const TuneOptions& options, Collective collective, bool mapped,
       perf::Noise& noise)
      : comm_(comm),
        options_(options),
        noise_(noise),
        oversubscribed_(oversubscribed(comm)),
        inputs_(Insides::of(comm).selector->inputs()),
        shape_(Insides::of(comm).selector->shape_of(collective, 0,
                                                    Insides::of(comm).settings.contract)),
        contenders_(contenders(shape_, inputs_)),
        input_(options.most_bytes, mapped),
        output_(options.most_bytes, mapped) {}

  /// Begins no more rounds, but one, once `late_us` have passed since `start`.
  Result<planner::Range> measure(std::size_t bytes, Clock::time_point start, double late_us) {
    if (input_.data() == nullptr || output_.data() == nullptr)
      return Error{Code::kSystem, "no memory for the buffers", comm_.rank()};
    const CollectiveTraits traits = traits_of(shape_.collective);
    const auto ranks = static_cast<std::size_t>(shape_.rank_count);
    const std::size_t blocks = traits.input_each || traits.output_each ? ranks : 1;
    Request request{.collective = shape_.collective,
                    .input = input_.data(),
                    .output = output_.data(),
                    .count = std::max<std::size_t>(1, bytes / sizeof(float) / blocks),
                    .type = DataType::kFloat32};
    const std::size_t whole = request.count * blocks * sizeof(float);
    std::vector<Contender*> looked_at;
    TUTTI_TRY(const double best, first_look(request, whole, looked_at));
    std::vector<Contender*> left;
    for (Contender* contender : looked_at) {
      const bool hopeless = contender->first_us > kHopeless * best;
      if (!hopeless || is_last_plan(contender, looked_at, best)) left.push_back(contender);
    }
    TUTTI_RETURN_IF_ERROR(in_turns(request, left, start, late_us));
    if (!oversubscribed_) {
      for (const Contender* contender : left) noise_.add(contender->rounds);
    }
    return planner::Range{whole, ranked(left, !oversubscribed_ && inputs_.hosts.of.empty())};
  }

 private:
  Result<double> first_look(Request request, std::size_t bytes,
                            std::vector<Contender*>& looked_at) {
    double best = 0, usual_us = 0;
    for (Contender& contender : contenders_) {
      if (contender.name == planner::kEagerName && bytes > inputs_.packet_bytes) continue;
      // With other lanes it follows itself with the usual ones.
      if (!contender.usual && usual_us > kNear * best) continue;
      request.algorithm = contender.algorithm_override;
      TUTTI_TRY(const double cold, timed(comm_, request, 1));  // Makes the plan, too.
      contender.first_us = cold;
      if (cold < 50 * options_.round_us) {
        TUTTI_TRY(contender.first_us, timed(comm_, request, cold > 10 * options_.round_us ? 1 : 4));
      }
      contender.rounds.clear();
      looked_at.push_back(&contender);
      if (contender.usual) usual_us = contender.first_us;
      if (best == 0 || contender.first_us < best) best = contender.first_us;
    }
    return best;
  }

  /// Whether it is the best of the plans that keep every contract, which a table always has.
  static bool is_last_plan(const Contender* contender, const std::vector<Contender*>& all,
                           double best) {
    if (!contender->deterministic || contender->name == planner::kEagerName) return false;
    return std::none_of(all.begin(), all.end(), [&](const Contender* other) {
      return other->deterministic && other->name != planner::kEagerName &&
             (other->first_us <= kHopeless * best || other->first_us < contender->first_us);
    });
  }

  Status in_turns(Request request, const std::vector<Contender*>& left, Clock::time_point start,
                  double late_us) {
    for (int round = 0; round < options_.rounds; ++round) {
      TUTTI_TRY(const double passed_us, slowest(comm_, since_us(start)));
      if (round > 0 && passed_us > late_us) break;
      for (Contender* contender : left) {
        const double us = std::max(contender->first_us, 0.05);
        const int calls =
            static_cast<int>(std::clamp(options_.round_us / us, 1.0, 1.0 * kMostCalls));
        request.algorithm = contender->algorithm_override;
        TUTTI_TRY(const double took, timed(comm_, request, calls));
        contender->rounds.push_back(took);
      }
    }
    return ok();
  }

  Communicator& comm_;
  const TuneOptions& options_;
  perf::Noise& noise_;
  const bool oversubscribed_;
  const planner::PlannerInputs& inputs_;
  plan::Shape shape_;
  std::vector<Contender> contenders_;
  perf::Buffer input_, output_;
};

}  // namespace

Status tune_ways(Communicator& comm, const TuneOptions& options, const TuneProgress& progress,
                 planner::TuningTable& table, perf::Noise& noise) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = options.least_bytes; bytes <= options.most_bytes;
       bytes *= options.factor)
    sizes.push_back(bytes);
  std::vector<bool> kinds{false};
  if (planner::some_share_memory(table.key.hosts)) kinds.push_back(true);
  const std::size_t all = options.collectives.size() * kinds.size() * sizes.size();
  std::size_t done = 0;
  const auto start = Clock::now();
  for (const Collective collective : options.collectives) {
    for (const bool mapped : kinds) {
      List list(comm, options, collective, mapped, noise);
      auto& ranges = table.of(collective, mapped);
      for (const std::size_t bytes : sizes) {
        progress(done++, all, collective, mapped, bytes);
        const double share = static_cast<double>(done) / static_cast<double>(all);
        TUTTI_TRY(auto range, list.measure(bytes, start, 1e6 * options.seconds * share));
        if (!ranges.empty() && range.up_to <= ranges.back().up_to) continue;  // An element a rank.
        ranges.push_back(std::move(range));
      }
    }
  }
  return ok();
}

}  // namespace tutti::tools
