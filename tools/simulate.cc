// tutti simulate: how long a collective takes on a machine that need not be here.
#include "simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "perf/sweep/options.h"
#include "topo.h"
#include "topology/model.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kMostRows = 1000;
constexpr int kMostRanks = 16384;
constexpr double kMostBytes = 1e15;

struct Options {
  GraphSource source;
  std::string collective = "all_reduce", contract = "deterministic", type = "float32";
  std::vector<std::string> algorithms, protocols;
  std::string bytes = "8:16G:4", ranks;
  int root = 0;
  bool json = false;
  std::string csv, svg;
};

/// What the words of the command line mean.
struct Job {
  planner::SimulateOptions simulate;
  std::vector<const Algorithm*> algorithms;
  std::vector<const planner::Protocol*> protocols;
  std::vector<double> bytes, ranks;
};

Error bad(std::string what) { return {Code::kInvalidArgument, std::move(what), {}, {}}; }

/// "8", "8,64K", "8:16G" or "8:16G:4": one, some, or from the first by a factor up to the last.
Result<std::vector<double>> parse_range(const std::string& option, const std::string& text,
                                        double factor, double most) {
  const auto wrong = [&] {
    return bad(
        fmt::format("{}: '{}' is no range; try 64K or 8:16G or 8:16G:4 or 8,64K, up to {:.0f}",
                    option, text, most));
  };
  const char separator = text.find(':') == std::string::npos ? ',' : ':';
  std::vector<double> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(separator, at), text.size());
    const auto value = perf::parse_size(text.substr(at, end - at));
    if (!value || *value < 1 || static_cast<double>(*value) > most) return wrong();
    parts.push_back(static_cast<double>(*value));
    at = end + 1;
  }
  if (separator == ',') return parts;
  if (parts.size() > 3) return wrong();
  if (parts.size() == 3) factor = parts[2];
  if (factor < 2 || parts[1] < parts[0]) return wrong();
  std::vector<double> range;
  for (double value = parts[0]; value <= parts[1]; value *= factor) range.push_back(value);
  return range;
}

Result<Job> understand(const Options& options) {
  Job job;
  const auto collective = parse_collective(options.collective);
  if (!collective)
    return bad(
        fmt::format("'{}' is no collective; there are all_reduce, reduce_scatter, "
                    "all_gather and broadcast",
                    options.collective));
  job.simulate.collective = *collective;
  const auto type = parse_data_type(options.type);
  if (!type) return bad(fmt::format("--type: '{}' is no data type; try float32", options.type));
  job.simulate.type = *type;
  if (options.contract != "deterministic" && options.contract != "relaxed")
    return bad(
        fmt::format("--contract: '{}' is neither deterministic nor relaxed", options.contract));
  job.simulate.contract =
      options.contract == "relaxed" ? Contract::kRelaxed : Contract::kDeterministic;
  job.simulate.root = options.root;
  for (const std::string& name : options.algorithms) {
    const Algorithm* found = find_algorithm(*collective, name);
    if (found == nullptr) {
      std::string known;
      for (const Algorithm* algorithm : algorithms()) {
        if (algorithm->collective == *collective)
          known += fmt::format("{}{}", known.empty() ? "" : ", ", algorithm->name);
      }
      return bad(fmt::format("--algorithm: no {} is called '{}'; there are {}", options.collective,
                             name, known));
    }
    job.algorithms.push_back(found);
  }
  for (const std::string& name : options.protocols) {
    const planner::Protocol* found = planner::find_protocol(name);
    if (found == nullptr)
      return bad(
          fmt::format("--protocol: '{}' is none; there are {}", name, planner::protocol_names()));
    job.protocols.push_back(found);
  }
  if (job.protocols.empty()) {
    for (const planner::Protocol& protocol : planner::protocols())
      job.protocols.push_back(&protocol);
  }
  TUTTI_TRY(job.bytes, parse_range("--bytes", options.bytes, 4, kMostBytes));
  if (!options.ranks.empty()) {
    TUTTI_TRY(job.ranks, parse_range("--ranks", options.ranks, 2, kMostRanks));
  }
  if (job.bytes.size() * std::max<std::size_t>(1, job.ranks.size()) > kMostRows)
    return bad(fmt::format("--bytes and --ranks make {} rows; choose at most {}",
                           job.bytes.size() * job.ranks.size(), kMostRows));
  return job;
}

/// A machine with at least so many ranks (0: as it is); a model without a size grows.
Result<topology::Graph> machine_for(const GraphSource& source, int ranks) {
  TUTTI_TRY(auto machine, load(source));
  const auto has = static_cast<int>(topology::default_endpoints(machine.graph).size());
  if (ranks <= has) return std::move(machine.graph);
  if (source.model.empty() || source.model.find(':') != std::string::npos)
    return bad(fmt::format("--ranks {}: the machine has {}; choose fewer{}", ranks, has,
                           source.model.empty() ? "" : ", or leave out the model's size"));
  GraphSource larger = source;
  larger.model += fmt::format(":{}", (ranks + has - 1) / has);
  TUTTI_TRY(machine, load(larger));
  return std::move(machine.graph);
}

void add_note(SimulatedCurve& curve, std::string note) {
  if (std::find(curve.notes.begin(), curve.notes.end(), note) == curve.notes.end())
    curve.notes.push_back(std::move(note));
}

/// Simulates all sizes on one machine, and adds the rows.
Status simulate_ranks(const Job& job, const topology::Graph& graph, int ranks,
                      SimulatedCurve& curve) {
  auto endpoints = topology::default_endpoints(graph);
  if (ranks > 0) endpoints.resize(static_cast<std::size_t>(ranks));
  if (endpoints.size() < 2)
    return bad(fmt::format("{} rank(s): a collective needs at least 2", endpoints.size()));
  if (job.simulate.root < 0 || static_cast<std::size_t>(job.simulate.root) >= endpoints.size())
    return bad(
        fmt::format("--root {}: there are ranks 0 to {}", job.simulate.root, endpoints.size() - 1));
  planner::Simulator simulator(graph, endpoints, job.simulate);
  const auto candidates = job.algorithms.empty() ? simulator.candidates() : job.algorithms;
  if (curve.algorithms.empty()) {
    for (const Algorithm* algorithm : candidates) curve.algorithms.emplace_back(algorithm->name);
  }
  const bool joins = std::any_of(job.protocols.begin(), job.protocols.end(),
                                 [&](const planner::Protocol* protocol) {
                                   return protocol->joins_in_switch && simulator.may_use(*protocol);
                                 });
  for (const double bytes : job.bytes) {
    SimulatedRow row{.ranks = static_cast<int>(endpoints.size()),
                     .bytes = static_cast<std::size_t>(bytes),
                     .samples = {}};
    for (const Algorithm* algorithm : candidates) {
      const auto sample = simulator.run(*algorithm, job.protocols, row.bytes);
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

Result<SimulatedCurve> simulate(const Job& job, const Options& options) {
  SimulatedCurve curve;
  curve.collective = job.simulate.collective;
  curve.compares = job.algorithms.size() > 1;
  curve.machine = !options.source.model.empty()  ? options.source.model
                  : !options.source.from.empty() ? options.source.from
                                                 : "this machine";
  int most = 0;
  for (const double ranks : job.ranks.empty() ? std::vector<double>{0} : job.ranks) {
    TUTTI_TRY(const topology::Graph graph, machine_for(options.source, static_cast<int>(ranks)));
    TUTTI_CHECK_OK(simulate_ranks(job, graph, static_cast<int>(ranks), curve));
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
  command
      ->add_option("COLLECTIVE", options->collective,
                   "all_reduce, reduce_scatter, all_gather or broadcast")
      ->capture_default_str();
  add_source_options(*command, options->source);
  command->add_option("--algorithm", options->algorithms, "Only these; each gets a column")
      ->delimiter(',');
  command
      ->add_option("--protocol", options->protocols, "Only these of " + planner::protocol_names())
      ->delimiter(',');
  command->add_option("--contract", options->contract, "deterministic or relaxed")
      ->capture_default_str();
  command->add_option("--bytes", options->bytes, "Sizes: FROM[:TO[:FACTOR]] or A,B,...")
      ->capture_default_str();
  command->add_option("--ranks", options->ranks,
                      "Rank counts, the same way; a model without a size grows");
  command->add_option("--type", options->type, "Data type")->capture_default_str();
  command->add_option("--root", options->root, "Root of a broadcast")->capture_default_str();
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
