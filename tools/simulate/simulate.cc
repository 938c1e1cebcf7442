// tutti simulate: how long a collective takes on a machine that need not be here.
#include "tools/simulate/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>

#include "tools/progress.h"
#include "tools/simulate/options.h"
#include "topology/graph/words.h"

namespace tutti::tools {
namespace {

struct Options : SimulateWords {
  bool json = false;
  std::string csv, svg;
};

void add_note(SimulatedCurve& curve, std::string note) {
  if (std::find(curve.notes.begin(), curve.notes.end(), note) == curve.notes.end())
    curve.notes.push_back(std::move(note));
}

// Fills a curve, and says each row as soon as it is known.
class Simulation {
 public:
  Simulation(const SimulateJob& job, const Options& options) : job_(job), options_(options) {
    curve_.collective = job.simulate.collective;
    curve_.compares = job.algorithms.size() > 1;
    curve_.several_ranks = job.ranks.size() > 1;
    all_ = job.bytes.size() * std::max<std::size_t>(1, job.ranks.size());
  }

  Result<SimulatedCurve> run() {
    for (const double ranks : job_.ranks.empty() ? std::vector<double>{0} : job_.ranks) {
      TUTTI_TRY(const RankedMachine machine,
                machine_for(options_.source, static_cast<int>(ranks), options_.root));
      simulate(machine);
    }
    clear_progress();
    if (curve_.rows.empty())
      return topology::invalid("{}", curve_.notes.empty()
                                         ? "no algorithm applies; try --contract relaxed"
                                         : curve_.notes.front());
    if (!options_.json) say("{}", table_footer(curve_));
    return std::move(curve_);
  }

 private:
  // All sizes on one machine.
  void simulate(const RankedMachine& machine) {
    curve_.machine = name_of(options_.source, machine.graph);
    planner::Simulator simulator(machine.graph, machine.ranks, job_.simulate);
    const auto candidates = job_.algorithms.empty() ? simulator.candidates() : job_.algorithms;
    if (curve_.rows.empty()) begin(candidates, static_cast<int>(machine.ranks.size()));
    std::vector<const planner::Protocol*> usable;
    for (const planner::Protocol* protocol : job_.protocols) {
      if (simulator.may_use(*protocol)) usable.push_back(protocol);
    }
    const bool joins =
        std::any_of(usable.begin(), usable.end(),
                    [](const planner::Protocol* protocol) { return protocol->joins_in_switch; });
    for (const double bytes : job_.bytes) {
      SimulatedRow row = simulate(simulator, candidates, usable, static_cast<std::size_t>(bytes));
      ++done_;
      if (row.samples.empty() || !row.samples[row.best]) continue;
      const auto bound = simulator.bound_us(row.bytes, joins);
      if (bound) row.bound_us = *bound;
      if (!bound) add_note(curve_, bound.error().what);
      show(row);
      curve_.rows.push_back(std::move(row));
    }
    if (const std::string assumed = simulator.machine().assumed(); !assumed.empty())
      add_note(curve_, "assumed: " + assumed);
    const auto words = simulator.bound_words(joins);
    if (words && job_.ranks.size() <= 1)
      add_note(curve_,
               fmt::format("bound{}: {}", joins ? ", with switches that add up" : "", *words));
  }

  SimulatedRow simulate(planner::Simulator& simulator, std::span<const Algorithm* const> candidates,
                        std::span<const planner::Protocol* const> usable, std::size_t bytes) {
    SimulatedRow row{.ranks = simulator.machine().rank_count(), .bytes = bytes, .samples = {}};
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      show_progress(
          done_ * candidates.size() + i, all_ * candidates.size(),
          fmt::format("{} ranks, {}: {}", row.ranks, size_text(bytes), candidates[i]->name));
      const auto sample = simulator.run(*candidates[i], usable, bytes);
      if (!sample) {
        add_note(curve_, sample.error().what);
        row.samples.emplace_back(std::nullopt);
        continue;
      }
      row.samples.emplace_back(*sample);
      const auto& best = row.samples[row.best];
      if (!best || sample->microseconds < best->microseconds) row.best = i;
    }
    return row;
  }

  void begin(std::span<const Algorithm* const> candidates, int ranks) {
    curve_.algorithms.clear();
    for (const Algorithm* algorithm : candidates) curve_.algorithms.emplace_back(algorithm->name);
    const auto most = std::max_element(job_.ranks.begin(), job_.ranks.end());
    curve_.title =
        fmt::format("{} of {} on {}, {}{} ranks, contract {}", options_.collective, options_.type,
                    curve_.machine, curve_.several_ranks ? "up to " : "",
                    most == job_.ranks.end() ? ranks : static_cast<int>(*most), options_.contract);
  }

  void show(const SimulatedRow& row) const {
    if (options_.json) return;
    clear_progress();
    if (curve_.rows.empty()) say("{}", table_header(curve_));
    say("{}", table_row(curve_, row));
    flush_output();  // Also into a file or pipe, because the next row may take a minute.
  }

  const SimulateJob& job_;
  const Options& options_;
  SimulatedCurve curve_;
  std::size_t done_ = 0, all_ = 0;  // Rows.
};

Result<int> run(const Options& options) {
  TUTTI_TRY(const SimulateJob job, understand(options));
  TUTTI_RETURN_IF_ERROR(check_outputs({{"--csv", options.csv}, {"--svg", options.svg}}));
  TUTTI_TRY(const SimulatedCurve curve, Simulation(job, options).run());
  if (options.json) say("{}", to_json(curve));
  if (!options.csv.empty()) TUTTI_RETURN_IF_ERROR(write_text(options.csv, to_csv(curve)));
  if (!options.svg.empty()) TUTTI_RETURN_IF_ERROR(write_text(options.svg, to_svg(curve)));
  return 0;
}

}  // namespace

void define_simulate(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  const auto command = app.add_subcommand(
      "simulate", "How long a collective takes on a machine that need not be here");
  add_simulate_options(command, *options);
  command.add_option("--bytes", options->bytes, "Sizes: FROM[:TO[:FACTOR]] or A,B,...")
      .capture_default_str();
  command.add_option(
      "--ranks", options->ranks,
      "Rank counts, the same way; a model without a size and a file of one host grow");
  command.add_flag("--json", options->json, "As JSON");
  command.add_option("--csv", options->csv, "Also write the rows to this file").type_name("FILE");
  command.add_option("--svg", options->svg, "Also draw the curve into this file").type_name("FILE");
  command.footer(
      "Examples:\n  tutti simulate all_reduce --model hgx-h100:2\n"
      "  tutti simulate all_reduce --model dgx-a100 --algorithm ring,two_shot --contract relaxed\n"
      "  tutti simulate all_gather --from machine.xml --ranks 4:64 --bytes 1G --svg curve.svg");
  command.callback([options, &exit_code] {
    const Result<int> done = run(*options);
    if (!done) clear_progress();
    exit_code = exit_code_of(done, "simulate");
  });
}

}  // namespace tutti::tools
