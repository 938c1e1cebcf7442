// tutti explain: which algorithm is chosen on a machine, why the others are not, and what holds it
// up.
#include "tools/explain/explain.h"

#include <fmt/format.h>

#include "base/shown_time.h"
#include "perf/command_line/command_line.h"
#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "tools/simulate/options.h"
#include "tools/simulate/simulate.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kMostSteps = std::size_t{1} << 16;  // In a picture's plan.

struct Options : SimulateWords, Shown {
  Options() { bytes = "64M"; }
};

std::size_t steps_of(const plan::RankPlan& rank) {
  std::size_t steps = 0;
  for (const plan::Lane& lane : rank.lanes) steps += lane.steps.size();
  return steps;
}

/// Simulates the best once more, and draws what it does.
Result<std::string> picture(const Explained& explained, const RankedMachine& machine,
                            planner::SimulateOptions options) {
  options.symmetry = false;  // All ranks are drawn.
  const planner::Sample& best = explained.explanation.best();
  planner::Simulator simulator(machine.graph, machine.ranks, options);
  TUTTI_TRY(const plan::Plan plan, simulator.plan_of(best));
  std::size_t steps = 0;
  for (const plan::RankPlan& rank : plan.ranks) steps += steps_of(rank);
  if (steps > kMostSteps)
    return invalid("--svg: a plan of {} steps can't be drawn; choose fewer ranks", steps);
  plan::Recording recording;
  TUTTI_TRY(const auto sample,
            simulator.run(*best.algorithm, *best.protocol, explained.bytes, &recording));
  const double bound_us = explained.explanation.bound_us;
  std::string words = fmt::format("{} over {}, {} lane{}: {} us, bus bandwidth {} GB/s",
                                  sample.algorithm->name, sample.protocol->name, sample.lanes,
                                  sample.lanes == 1 ? "" : "s", time_text(sample.microseconds),
                                  rate_text(explained.bus_bandwidth(sample.microseconds)));
  if (is_shown(bound_us))
    words += fmt::format(", {:.0f} % of the bound", 100 * bound_us / sample.microseconds);
  return to_svg({.title = explained.title(),
                 .words = words,
                 .plan = plan,
                 .recording = recording,
                 .start_us = sample.protocol->base_us,
                 .bound_us = bound_us});
}

constexpr std::size_t kMostProved = std::size_t{1} << 22;  // Steps of a plan, some seconds.

/// Proves the plan that is called chosen, as a communicator does before it runs one. Empty, or why
/// it was not proved.
Result<std::string> prove(const planner::Sample& best) {
  const std::size_t steps = steps_of(build(*best.algorithm, best.shape, Rank{0})) *
                            static_cast<std::size_t>(best.shape.rank_count);
  if (steps > kMostProved)
    return fmt::format("not verified here: about {} steps; a communicator verifies each plan\n",
                       steps);
  TUTTI_RETURN_IF_ERROR(plan::verify(build(*best.algorithm, best.shape)));
  return std::string();
}

/// The steps of each lane, for all ranks or for one.
Result<std::string> plan_text(const Explained& explained, const planner::Simulator& simulator,
                              int rank) {
  const planner::Sample& best = explained.explanation.best();
  if (rank >= explained.ranks)
    return invalid("--rank {}: there are ranks 0 to {}", rank, explained.ranks - 1);
  const plan::Plan plan = plan::fuse(build(*best.algorithm, best.shape),
                                     static_cast<std::uint32_t>(simulator.options().slots));
  std::string text =
      best.lanes == 1
          ? "# One lane does this\n"
          : fmt::format("# {} lanes do this side by side, each with its share\n", best.lanes);
  return text + (rank < 0 ? plan::to_text(plan) : plan::to_text(plan, Rank{rank}));
}

Status explain(const Options& options) {
  TUTTI_TRY(const SimulateJob job, understand(options));
  if (job.bytes.size() != 1) return invalid("--bytes: one size at a time, such as 64M");
  if (job.ranks.size() > 1) return invalid("--ranks: one number at a time");
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--svg", options.svg}}));
  const int ranks = job.ranks.empty() ? 0 : static_cast<int>(job.ranks[0]);
  if (options.source.from.empty() && options.source.model.empty()) {
    if (!options.algorithms.empty() || !options.protocols.empty())
      return invalid(
          "--algorithm and --protocol are for --model and --from; on this machine "
          "TUTTI_ALGORITHM forces or forbids");
    return explain_host(job.simulate, static_cast<std::size_t>(job.bytes[0]), ranks, options);
  }
  if (options.mapped)
    return invalid("--mapped is for ranks on this machine, or those of a launcher");
  TUTTI_TRY(const RankedMachine machine, machine_for(options.source, ranks, options.root));
  planner::Simulator simulator(machine.graph, machine.ranks, job.simulate);
  Explained explained{.collective = job.simulate.collective,
                      .type = job.simulate.type,
                      .bytes = static_cast<std::size_t>(job.bytes[0]),
                      .ranks = simulator.machine().rank_count(),
                      .machine = name_of(options.source, machine.graph),
                      .contract = options.contract,
                      .explanation = {}};
  TUTTI_TRY(explained.explanation,
            planner::explain(simulator, job.algorithms, job.protocols, explained.bytes));
  TUTTI_TRY(const std::string not_proved, prove(explained.explanation.best()));
  say("{}", options.json ? to_json(explained) : to_text(explained) + not_proved);
  if (options.plan || options.rank >= 0) {
    TUTTI_TRY(const std::string text, plan_text(explained, simulator, options.rank));
    say("\n{}", text);
  }
  if (options.svg.empty()) return ok();
  TUTTI_TRY(const std::string svg, picture(explained, machine, job.simulate));
  return write_text(options.svg, svg);
}

int run(const Options& options) {
  const Status done = explain(options);
  if (done) return 0;
  say_error("tutti explain: {}\n", done.error().what);
  return done.error().code == Code::kInvalidArgument ? kUsage : 1;
}

}  // namespace

void define_explain(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  const auto command = app.add_subcommand(
      "explain", "Which algorithm is chosen, why the others are not, and what holds it up");
  add_simulate_options(command, *options);
  perf::add_shown(command, "--bytes", options->bytes, "Size of the message: 8, 64K, 1G");
  command.add_option(
      "--ranks", options->ranks,
      "So many ranks; a model without a size grows. Default: all; here the launcher's, or "
      "the CPUs");
  command.add_flag("--mapped", options->mapped,
                   "Without a model: buffers that peers on a host can map");
  const auto json = command.add_flag("--json", options->json, "As JSON");
  command.add_flag("--plan", options->plan, "Also print the plan that is chosen").excludes(json);
  command.add_option("--rank", options->rank, "With --plan: print only this rank's part")
      .check(perf::non_negative_number())
      .excludes(json);
  command.add_option("--svg", options->svg, "Draw what each rank does when into this file")
      .type_name("FILE");
  command.footer(
      "Examples:\n  tutti explain all_reduce --model hgx-h100:4 --bytes 64M --type bf16\n"
      "  tutti explain all_gather --from machine.xml --bytes 8 --svg gather.svg\n"
      "  tutti explain all_reduce --model dgx1-v100 --contract relaxed --plan --rank 0\n"
      "  tutti explain all_gather --ranks 4 --bytes 1M\n"
      "  tutti run --no-prefix --hosts node1:4,node2:4 -- tutti explain all_reduce --bytes 16M");
  command.callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tutti::tools
