#include "planner/planner.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/passes.h"
#include "plan/uneven.h"
#include "plan/verify.h"

namespace tutti::planner {
namespace {

double since_us(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

using Key = std::tuple<const Algorithm*, int, int, std::vector<int>, std::vector<int>, bool, bool,
                       std::uint32_t, bool>;

struct Cache {
  std::mutex mutex;
  std::map<Key, std::unique_ptr<VerifiedPlan>> plans;
};
Cache& cache() {
  static auto* instance = new Cache();  // Plans live as long as the process.
  return *instance;
}

Result<std::unique_ptr<VerifiedPlan>> make(const Recipe& recipe) {
  auto made = std::make_unique<VerifiedPlan>();
  auto start = std::chrono::steady_clock::now();
  made->plan = build(*recipe.algorithm, recipe.shape);
  if (recipe.lanes > 1) made->plan = plan::replicate(made->plan, recipe.lanes);
  const auto apply = [&](auto pass) {
    auto lowered = pass(made->plan);
    if (lowered && (!recipe.uneven || plan::runs_uneven(*lowered)))
      made->plan = std::move(*lowered);
  };
  if (recipe.direct) apply(plan::direct);
  if (recipe.multicast) apply(plan::multicast);
  made->build_us = since_us(start);
  start = std::chrono::steady_clock::now();
  if (auto verified = plan::verify(made->plan); !verified) return std::move(verified.error());
  made->verify_us = since_us(start);
  if (recipe.uneven && !plan::runs_uneven(made->plan)) {
    return Error{
        Code::kUnsupported,
        fmt::format("{} {} hands blocks on by way of ranks that don't know their sizes, so "
                    "all blocks must be of one size; 'direct' takes any",
                    to_string(recipe.shape.collective), recipe.algorithm->name)};
  }
  return made;
}

/// Where ranks share CPUs, a plan with fewer waits wins while messages are small, though one rank
/// does most of the work. Measured on 2 CPUs, medians of interleaved rounds, mapped, time of direct
/// / of two_shot: reduce of 32 KiB 0.70 (3 ranks), 0.56 and 0.73 (4), 0.83 (8), plain 0.50 to 0.67,
/// of 128 KiB 1.11 (4); broadcast of 32 KiB 0.96 (3), 0.70 and 0.74 (4), 0.94 (8), of 128 KiB 1.45
/// (8).
bool one_shot_wins(const Request& request) {
  constexpr std::size_t kFew = 32768;
  const Collective collective = request.shape.collective;
  return request.crowded && request.bytes <= kFew &&
         (collective == Collective::kReduce || collective == Collective::kBroadcast);
}

/// The algorithm for what is not forced.
std::string_view default_name(const Request& request) {
  const int n = request.shape.rank_count;
  if (one_shot_wins(request)) return "direct";
  switch (request.shape.collective) {
    // Between two ranks one shot moves as much as two do, with half the waits. Mapped, two shots
    // move less.
    case Collective::kAllReduce:
      return n == 1 || (n == 2 && !request.mapped) ? "one_shot" : "two_shot";
    case Collective::kReduceScatter: return "direct";
    case Collective::kAllGather: return "direct";
    case Collective::kBroadcast: return n <= 2 || !request.mapped ? "direct" : "two_shot";
    // With slots two shots between two ranks send half as much again. Measured: 256 KiB 34 us and
    // 30, 16 MiB 3.3 ms and 2.9. Mapped, both share the arithmetic.
    case Collective::kReduce: return n == 1 || (n == 2 && !request.mapped) ? "direct" : "two_shot";
    case Collective::kGather:
    case Collective::kScatter:
    case Collective::kAllToAll: return "direct";
  }
  return "";
}

Error unknown_algorithm(std::string_view name, std::optional<Collective> collective) {
  std::string known;
  for (const Algorithm* algorithm : algorithms()) {
    if (collective && algorithm->collective != *collective) continue;
    if (known.find(fmt::format(" {},", algorithm->name)) == std::string::npos)
      known += fmt::format(" {},", algorithm->name);
  }
  if (!known.empty()) known.pop_back();
  return {Code::kInvalidArgument,
          fmt::format("TUTTI_ALGORITHM: no {} algorithm is called '{}'; there are{}",
                      collective ? to_string(*collective) : std::string_view("registered"), name,
                      known)};
}

}  // namespace

Result<const VerifiedPlan*> prepare(const Recipe& recipe) {
  const plan::Shape& shape = recipe.shape;
  const Key key{recipe.algorithm, shape.rank_count, shape.root,   shape.groups.sizes, shape.weights,
                recipe.direct,    recipe.multicast, recipe.lanes, recipe.uneven};
  const std::lock_guard lock(cache().mutex);
  auto& slot = cache().plans[key];
  if (slot == nullptr) {
    auto made = make(recipe);
    if (!made) return std::move(made.error());
    slot = *std::move(made);
  }
  return static_cast<const VerifiedPlan*>(slot.get());
}

std::size_t packet_limit(int rank_count, int usable_cpus) {
  // Beyond it two shots win: one shot makes every rank read every rank's whole message. With more
  // ranks than CPUs that is weighed against one more round of switches. Measured, see
  // docs/PERFORMANCE.md.
  (void)usable_cpus;
  return rank_count <= 4 ? 16384
         : rank_count <= 8
             ? 8192
             : std::min<std::size_t>(4096, 65536 / static_cast<std::size_t>(rank_count));
}

std::size_t mapped_packet_limit(Collective collective, int rank_count, int usable_cpus) {
  // Where ranks share CPUs a plan's rounds cost a switch to every rank, and a packet's rooted call
  // none. Measured on 2 CPUs: 8 ranks, 8 KiB: all-reduce 28 us and by a plan 59, broadcast 3.0 and
  // 41; 4 ranks, 16 KiB: all-gather 7.1 and 16.2, scatter 1.9 and 8.9. Where every rank handles the
  // whole message it ends earlier: 4 ranks, 16 KiB: all-reduce 23 and 9, broadcast 30 and 10.
  if (rank_count > usable_cpus) {
    const CollectiveTraits traits = traits_of(collective);
    const std::size_t most = packet_limit(rank_count, usable_cpus);
    return traits.input_each || traits.output_each ? most : std::min<std::size_t>(8192, most);
  }
  // A rooted packet lets the root, or those who give, run ahead; a plan joins all ranks. Measured
  // on 2 ranks: 2 KiB 1.3 to 2 times slower by a plan, 4 KiB 1.2 times faster (a gather 1.3 times
  // slower), 16 KiB 2 to 4.5 times.
  if (collective == Collective::kGather) return 4096;
  return has_root(collective) ? 2048 : 1024;
}

Result<std::string> forced_name(std::string_view forced, Collective collective) {
  std::string name;
  while (!forced.empty()) {
    const auto comma = forced.find(',');
    const std::string_view entry = forced.substr(0, comma);
    forced = comma == std::string_view::npos ? std::string_view{} : forced.substr(comma + 1);
    const auto equals = entry.find('=');
    if (equals ==
        std::string_view::npos) {  // For every collective that has an algorithm of that name.
      bool known = false;
      for (const Algorithm* algorithm : algorithms()) known = known || algorithm->name == entry;
      if (!known) return unknown_algorithm(entry, std::nullopt);
      if (find_algorithm(collective, entry) != nullptr) name = entry;
      continue;
    }
    const auto which = parse_collective(entry.substr(0, equals));
    if (!which) {
      return Error{Code::kInvalidArgument,
                   fmt::format("TUTTI_ALGORITHM: '{}' is no collective; there are {}",
                               entry.substr(0, equals), collective_names())};
    }
    const std::string_view value = entry.substr(equals + 1);
    if (find_algorithm(*which, value) == nullptr) return unknown_algorithm(value, which);
    if (*which == collective) return std::string(value);
  }
  return name;
}

Result<Recipe> choose(const Request& request, std::string_view forced) {
  TUTTI_TRY(const std::string name, forced_name(forced, request.shape.collective));
  Recipe recipe{.algorithm = nullptr,
                .shape = request.shape,
                .direct = request.mapped,
                .multicast = true,
                .lanes = 1,
                .uneven = request.uneven};
  recipe.algorithm =
      find_algorithm(request.shape.collective, name.empty() ? default_name(request) : name);
  if (recipe.algorithm == nullptr)
    return unknown_algorithm(default_name(request), request.shape.collective);
  if (!recipe.algorithm->applies(request.shape)) {
    const auto& groups = request.shape.groups.sizes;
    return Error{
        Code::kInvalidArgument,
        fmt::format("TUTTI_ALGORITHM: {} does not apply to {} ranks in groups of {}, {} weights",
                    name, request.shape.rank_count,
                    groups.empty() ? "1" : fmt::format("{}", fmt::join(groups, ",")),
                    request.shape.weights.empty() ? "without" : "with these")};
  }
  if (request.contract == Contract::kDeterministic &&
      recipe.algorithm->contract(request.shape) == Contract::kRelaxed) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("TUTTI_ALGORITHM: {} with {} ranks keeps the relaxed contract only; set "
                    "TUTTI_CONTRACT=relaxed to allow it",
                    name, request.shape.rank_count)};
  }
  return recipe;
}

Result<std::uint32_t> lanes_needed(int rank_count, const Settings& settings) {
  std::size_t most = 1;
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const unsigned way : {0U, 1U, 2U, 3U}) {
      Request request;
      request.shape = {static_cast<Collective>(i), rank_count, 0, std::max(settings.group_size, 1)};
      request.mapped = (way & 1) != 0;
      request.crowded = (way & 2) != 0;
      request.contract = settings.contract;
      TUTTI_TRY(const auto recipe, choose(request, settings.algorithm));
      most = std::max(most, build(*recipe.algorithm, request.shape, Rank{0}).lanes.size());
    }
  }
  return static_cast<std::uint32_t>(most) * static_cast<std::uint32_t>(std::max(settings.lanes, 1));
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
