// tutti plan: prints the plan of an algorithm, to read or to start one's own from, and checks what
// somebody wrote.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "perf/command_line/command_line.h"
#include "plan/names.h"
#include "plan/text/text.h"
#include "planner/plan_files.h"
#include "planner/planner.h"
#include "tools/command.h"
#include "tools/simulate/options.h"
#include "tools/words.h"

namespace tutti::tools {
namespace {

constexpr int kMostPlanRanks = 1024;

struct Options {
  std::string collective = "all_reduce", algorithm;
  int ranks = 2, root = 0, lanes = 1, host_ranks = 0;
  std::vector<int> groups, weights;
  bool direct = false, multicast = false;
  std::vector<std::string> check;
};

Result<planner::Recipe> understand(const Options& options) {
  TUTTI_TRY(const Collective collective, collective_named(options.collective));
  planner::Recipe recipe{.shape = {collective, options.ranks, options.root},
                         .direct = options.direct,
                         .multicast = options.multicast,
                         .lanes = static_cast<std::uint32_t>(options.lanes)};
  for (int rank = 0; options.direct && options.host_ranks > 0 && rank < options.ranks; ++rank)
    recipe.hosts.push_back(rank / options.host_ranks);
  recipe.shape.groups.sizes = options.groups;
  recipe.shape.weights = options.weights;
  if (options.root >= options.ranks)
    return invalid("--root {}: there are ranks 0 to {}", options.root, options.ranks - 1);
  if (options.algorithm.empty()) {
    // The size is too large for the eager path.
    const planner::Request large{
        .shape = recipe.shape, .bytes = std::size_t{1} << 30, .mapped = options.direct};
    TUTTI_TRY(const auto chosen, planner::choose(large, {}));
    recipe.algorithm = chosen.algorithm;
    return recipe;
  }
  TUTTI_TRY(recipe.algorithm, algorithm_named(collective, options.algorithm));
  if (!recipe.algorithm->applies(recipe.shape))
    return invalid(
        "{} does not apply to {} ranks in these groups with these weights; see "
        "--groups, --weights and docs/algorithms.md, for trees `tutti explain --plan`",
        options.algorithm, options.ranks);
  return recipe;
}

Status print(const Options& options) {
  TUTTI_TRY(const auto recipe, understand(options));
  TUTTI_TRY(const auto* made, planner::prepare(recipe));
  say("# Verified. TUTTI_PLAN=FILE{} runs it; docs/plan-format.md says what it means.\n{}",
      made->plan.contract == Contract::kRelaxed ? " TUTTI_CONTRACT=relaxed" : "",
      plan::to_text(made->plan));
  return ok();
}

struct Size {
  std::size_t lanes = 0, steps = 0, messages = 0;
};

Size size_of(const plan::Plan& plan) {
  Size size;
  for (const plan::RankPlan& rank : plan.ranks) {
    size.lanes = std::max(size.lanes, rank.lanes.size());
    for (const plan::Lane& lane : rank.lanes) {
      size.steps += lane.steps.size();
      for (const plan::Step& step : lane.steps) {
        for (std::uint32_t i = 0; i < step.target_count; ++i) {
          const auto place = lane.locations[step.first + step.source_count + i].place;
          if (place == plan::Place::kSlot || place == plan::Place::kMulticast) ++size.messages;
        }
      }
    }
  }
  return size;
}

Status check(const std::string& file) {
  TUTTI_TRY(const auto written, planner::read_plan(file));
  const plan::Plan& plan = written.plan;
  const plan::Shape& shape = plan.shape;
  const bool relaxed = plan.contract == Contract::kRelaxed;
  const Size size = size_of(plan);
  say("{}: {} {} of {} ranks{}{}\n", file, plan.name, to_string(shape.collective), shape.rank_count,
      has_root(shape.collective) ? fmt::format(", root {}", shape.root) : "",
      written.mapped_only ? ", for buffers that all ranks can map" : "");
  say("  result    right; contract {}{}\n", plan::to_string(plan.contract),
      relaxed ? ": not in canonical order" : "");
  say("  deadlock  none, with one slot per channel\n");
  say("  races     none, also in place and from call to call\n");
  say("  size      {} lane{}, {} steps and {} messages of all ranks, for each tile\n", size.lanes,
      size.lanes == 1 ? "" : "s", size.steps, size.messages);
  say("  run with  {}TUTTI_PLAN={}\n", relaxed ? "TUTTI_CONTRACT=relaxed " : "", file);
  return ok();
}

int run(const Options& options) {
  const auto complain = [](const Status& status) {
    if (!status) say_error("tutti plan: {}\n", status.error().what);
    return status ? 0 : status.error().code == Code::kInvalidArgument ? kUsage : 1;
  };
  if (options.check.empty()) return complain(print(options));
  int code = 0;
  for (const std::string& file : options.check) code = std::max(code, complain(check(file)));
  return code;
}

}  // namespace

void define_plan(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  const auto command = app.add_subcommand("plan", "Print an algorithm's plan, or check your own");
  perf::offer(
      perf::add_shown(command, "COLLECTIVE", options->collective, "all_reduce, broadcast, ..."),
      collective_words());
  perf::add_number(command, "--ranks", options->ranks, "Rank count", 1, kMostPlanRanks);
  perf::offer(
      command.add_option(
          "--algorithm", options->algorithm,
          "The algorithm (see tutti info); if left out, the one that the library would choose"),
      algorithm_words());
  perf::add_number(command, "--root", options->root, "The root of a rooted collective", 0,
                   kMostPlanRanks - 1);
  command.add_option("--groups", options->groups, "Ranks per group, as TUTTI_GROUPS")
      .delimiter(',');
  command.add_option("--weights", options->weights, "By rank, as TUTTI_WEIGHTS").delimiter(',');
  perf::add_number(command, "--lanes", options->lanes, "Parallel shares, as TUTTI_LANES", 1, 64);
  const auto direct =
      command.add_flag("--direct", options->direct, "Lower it for buffers that all ranks can map");
  command
      .add_option("--host-ranks", options->host_ranks,
                  "With --direct: of so many ranks in a row, a host's; they alone do")
      .check(perf::range(1, kMostPlanRanks))
      .needs(direct);
  command.add_flag("--multicast", options->multicast,
                   "Replace writes of one step to all ranks by one multicast write");
  command.add_option("--check", options->check, "Verify these files, and say what was proved")
      .type_name("FILE");
  command.footer(
      "Examples:\n  tutti plan all_reduce --ranks 4 --algorithm ring >mine.plan\n"
      "  tutti plan --check mine.plan\n"
      "  TUTTI_CONTRACT=relaxed TUTTI_PLAN=mine.plan all_reduce_perf --ranks 4 -c bits");
  command.callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tutti::tools
