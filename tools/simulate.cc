// tutti simulate: how long a collective takes on a machine that need not be here.
#include "simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "simulate_options.h"

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

/// Simulates all sizes on one machine, and adds the rows.
Status simulate_ranks(const SimulateJob& job, const RankedMachine& machine, SimulatedCurve& curve) {
  planner::Simulator simulator(machine.graph, machine.ranks, job.simulate);
  const auto candidates = job.algorithms.empty() ? simulator.candidates() : job.algorithms;
  if (curve.algorithms.empty()) {
    for (const Algorithm* algorithm : candidates) curve.algorithms.emplace_back(algorithm->name);
  }
  std::vector<const planner::Protocol*> usable;
  for (const planner::Protocol* protocol : job.protocols) {
    if (simulator.may_use(*protocol)) usable.push_back(protocol);
  }
  const bool joins =
      std::any_of(usable.begin(), usable.end(),
                  [](const planner::Protocol* protocol) { return protocol->joins_in_switch; });
  for (const double bytes : job.bytes) {
    SimulatedRow row{.ranks = static_cast<int>(machine.ranks.size()),
                     .bytes = static_cast<std::size_t>(bytes),
                     .samples = {}};
    for (const Algorithm* algorithm : candidates) {
      const auto sample = simulator.run(*algorithm, usable, row.bytes);
      if (!sample) {
        add_note(curve, sample.error().what);
        row.samples.emplace_back(std::nullopt);
        continue;
      }
      row.samples.emplace_back(*sample);
      const auto& best = row.samples[row.best];
      if (!best || sample->microseconds < best->microseconds) row.best = row.samples.size() - 1;
    }
    if (!row.samples.empty() && row.samples[row.best]) {
      const auto bound = simulator.bound_us(row.bytes, joins);
      if (bound) row.bound_us = *bound;
      if (!bound) add_note(curve, bound.error().what);
      curve.rows.push_back(std::move(row));
    }
  }
  const auto words = simulator.bound_words(joins);
  if (words && job.ranks.size() <= 1)
    add_note(curve, fmt::format("bound{}: {}", joins ? ", with switches that add up" : "", *words));
  return ok();
}

Result<SimulatedCurve> simulate(const SimulateJob& job, const Options& options) {
  SimulatedCurve curve;
  curve.collective = job.simulate.collective;
  curve.compares = job.algorithms.size() > 1;
  curve.machine = name_of(options.source);
  int most = 0;
  for (const double ranks : job.ranks.empty() ? std::vector<double>{0} : job.ranks) {
    TUTTI_TRY(const RankedMachine machine,
              machine_for(options.source, static_cast<int>(ranks), options.root));
    TUTTI_CHECK_OK(simulate_ranks(job, machine, curve));
    if (!curve.rows.empty()) most = std::max(most, curve.rows.back().ranks);
  }
  if (curve.rows.empty())
    return bad(curve.notes.empty() ? "no algorithm applies; try --contract relaxed"
                                   : curve.notes.front());
  curve.title =
      fmt::format("{} of {} on {}, {}{} ranks, contract {}", options.collective, options.type,
                  curve.machine, job.ranks.size() > 1 ? "up to " : "", most, options.contract);
  return curve;
}

int run(const Options& options) {
  const auto complain = [](const Error& error) {
    fmt::print(stderr, "tutti simulate: {}\n", error.what);
    return error.code == Code::kInvalidArgument ? kUsage : 1;
  };
  const auto job = understand(options);
  if (!job) return complain(job.error());
  const auto curve = simulate(*job, options);
  if (!curve) return complain(curve.error());
  fmt::print("{}", options.json ? to_json(*curve) : to_table(*curve));
  if (!options.csv.empty()) {
    if (auto wrote = write_text(options.csv, to_csv(*curve)); !wrote)
      return complain(wrote.error());
  }
  if (!options.svg.empty()) {
    if (auto wrote = write_text(options.svg, to_svg(*curve)); !wrote)
      return complain(wrote.error());
  }
  return 0;
}

}  // namespace

void define_simulate(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "simulate", "How long a collective takes on a machine that need not be here");
  add_simulate_options(*command, *options);
  command->add_option("--bytes", options->bytes, "Sizes: FROM[:TO[:FACTOR]] or A,B,...")
      ->capture_default_str();
  command->add_option("--ranks", options->ranks,
                      "Rank counts, the same way; a model without a size grows");
  command->add_flag("--json", options->json, "As JSON");
  command->add_option("--csv", options->csv, "Also write the rows to this file");
  command->add_option("--svg", options->svg, "Also draw the curve into this file");
  command->footer(
      "Examples:\n  tutti simulate all_reduce --model hgx-h100:2\n"
      "  tutti simulate all_reduce --model dgx-a100 --algorithm ring,two_shot --contract relaxed\n"
      "  tutti simulate all_gather --from machine.xml --ranks 4:64 --bytes 1G --svg curve.svg");
  command->callback([options, &exit_code] { exit_code = run(*options); });
}

}  // namespace tutti::tools
