// tutti step-time: how long a step of data-parallel training takes on a machine that need not be
// here.
//
// Layers are alike. A layer's forward pass takes 2, its backward pass 4 operations for each
// parameter and token. Parameters and gradients have 16 bits; Adam keeps two moments and a master
// copy in float32: 16 bytes for each parameter in all. A collective of each layer takes as long as
// the simulator says, alone on the network, and calls follow one another:
//
//   ddp           an all-reduce of each layer's gradient, as soon as backward has made it
//   hierarchical  the same by the library's hierarchical algorithm
//   zero3         an all-gather of each layer before it is used, forward and backward, one ahead of
//                 the layer that is computed; a reduce-scatter of its gradient behind backward
//
// Rajbhandari et al., ZeRO, 2020, section 7: the bytes. Narayanan et al., Efficient Large-Scale
// Language Model Training on GPU Clusters Using Megatron-LM, 2021: the operations.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "base/json.h"
#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "tools/simulate/options.h"
#include "tools/simulate/simulate.h"
#include "tools/words.h"
#include "topology/graph/words.h"

namespace tutti::tools {
namespace {

struct Model {
  std::string_view name;
  double parameters;
  int layers;
};
/// Sizes and depths as in GPT-3 and LLaMA.
constexpr Model kModels[] = {{"1B", 1e9, 24}, {"7B", 7e9, 32}, {"70B", 70e9, 80}};
constexpr std::string_view kStrategies[] = {"ddp", "hierarchical", "zero3"};
constexpr double kWireBytes = 2, kStateBytes = 16;  // For each parameter.

struct Options {
  std::string machine = "hgx-h100";
  std::vector<int> ranks = {8, 64, 512};
  std::vector<std::string> models = {"1B", "7B", "70B"};
  double tokens = 8192, teraflops = 400, memory_gigabytes = 80, rate = 25;
  std::string contract = "relaxed";
  bool json = false;
};

struct StepRow {
  int ranks = 0;
  const Model* model = nullptr;
  std::string_view strategy;
  double sent_bytes = 0, held_bytes = 0;  // Each rank holds, and sends in a step.
  double compute_us = 0, calls_us = 0, step_us = 0;
  double hidden() const {
    return calls_us > 0 ? std::clamp(1 - (step_us - compute_us) / calls_us, 0.0, 1.0) : 1;
  }
};

/// Times of collectives on one machine, each simulated once.
class Calls {
 public:
  Calls(const RankedMachine& machine, Contract contract) : machine_(machine), contract_(contract) {}

  /// The fastest algorithm's time, or that of the one named; none: it does not apply here.
  std::optional<double> microseconds(Collective collective, double bytes,
                                     std::string_view algorithm = {}) {
    const auto key = std::tuple(collective, bytes, algorithm);
    if (const auto known = times_.find(key); known != times_.end()) return known->second;
    return times_[key] =
               fastest(simulator_of(collective), static_cast<std::size_t>(bytes), algorithm);
  }
  int ranks() const { return static_cast<int>(machine_.ranks.size()); }

 private:
  /// With hundreds of ranks, algorithms in which all send to all take minutes to simulate. They
  /// come last, as they take longest at least, and by then are known to be slower.
  static std::optional<double> fastest(planner::Simulator& simulator, std::size_t bytes,
                                       std::string_view algorithm) {
    struct Candidate {
      double least_us;
      const Algorithm* algorithm;
      const planner::Protocol* protocol;
    };
    std::vector<Candidate> candidates;
    for (const Algorithm* one : simulator.candidates()) {
      if (!algorithm.empty() && one->name != algorithm) continue;
      for (const planner::Protocol& protocol : planner::protocols()) {
        if (!simulator.may_use(protocol)) continue;
        candidates.push_back(Candidate{simulator.least_us(*one, protocol, bytes), one, &protocol});
      }
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::least_us);
    std::optional<double> best;
    for (const Candidate& candidate : candidates) {
      if (best && candidate.least_us >= *best) break;
      const auto sample = simulator.run(*candidate.algorithm, *candidate.protocol, bytes, nullptr,
                                        best.value_or(plan::kBeyondLimit));
      if (sample) best = std::min(best.value_or(sample->microseconds), sample->microseconds);
    }
    return best;
  }

  planner::Simulator& simulator_of(Collective collective) {
    auto& simulator = simulators_[collective];
    if (simulator == nullptr) {
      planner::SimulateOptions options;
      options.collective = collective;
      options.contract = contract_;
      options.type = DataType::kBfloat16;
      simulator = std::make_unique<planner::Simulator>(machine_.graph, machine_.ranks, options);
    }
    return *simulator;
  }

  const RankedMachine& machine_;
  const Contract contract_;
  std::map<Collective, std::unique_ptr<planner::Simulator>> simulators_;
  std::map<std::tuple<Collective, double, std::string_view>, std::optional<double>> times_;
};

/// The end of a step: the network takes one call at a time, as does what computes.
class Timeline {
 public:
  void compute(double us) { computed_ += us; }
  /// Starts when it can; returns when it is over.
  double call(double from, double us) { return network_ = std::max(network_, from) + us; }
  void wait(double until) { computed_ = std::max(computed_, until); }
  double now() const { return computed_; }
  double end() const { return std::max(computed_, network_); }

 private:
  double computed_ = 0, network_ = 0;
};

double ddp_step_us(int layers, double forward_us, double reduce_us) {
  Timeline line;
  line.compute(layers * forward_us);
  for (int layer = 0; layer < layers; ++layer) {
    line.compute(2 * forward_us);
    line.call(line.now(), reduce_us);
  }
  return line.end();
}

double zero3_step_us(int layers, double forward_us, double gather_us, double scatter_us) {
  Timeline line;
  double gathered = line.call(0, gather_us);
  for (int pass = 0; pass < 2 * layers; ++pass) {  // Forward, then backward.
    line.wait(gathered);
    if (pass + 1 < 2 * layers) gathered = line.call(line.now(), gather_us);
    line.compute(pass < layers ? forward_us : 2 * forward_us);
    if (pass >= layers) line.call(line.now(), scatter_us);
  }
  return line.end();
}

/// None: the strategy does not apply here.
std::optional<StepRow> step_of(Calls& calls, const Model& model, std::string_view strategy,
                               const Options& options) {
  StepRow row{.ranks = calls.ranks(), .model = &model, .strategy = strategy};
  const double whole = model.parameters * kWireBytes, layer = whole / model.layers;
  const double share = 1 - 1.0 / row.ranks;
  const double forward_us =
      2 * model.parameters / model.layers * options.tokens / (options.teraflops * 1e6);
  row.compute_us = 3 * forward_us * model.layers;
  if (strategy == "zero3") {
    const auto gather = calls.microseconds(Collective::kAllGather, layer);
    const auto scatter = calls.microseconds(Collective::kReduceScatter, layer);
    if (!gather || !scatter) return std::nullopt;
    row.sent_bytes = 3 * share * whole;
    row.held_bytes = model.parameters * kStateBytes / row.ranks + 2 * layer;
    row.calls_us = model.layers * (2 * *gather + *scatter);
    row.step_us = zero3_step_us(model.layers, forward_us, *gather, *scatter);
    return row;
  }
  const std::string_view algorithm = strategy == "hierarchical" ? strategy : "";
  const auto reduce = calls.microseconds(Collective::kAllReduce, layer, algorithm);
  if (!reduce) return std::nullopt;
  row.sent_bytes = 2 * share * whole;
  row.held_bytes = model.parameters * kStateBytes;
  row.calls_us = model.layers * *reduce;
  row.step_us = ddp_step_us(model.layers, forward_us, *reduce);
  return row;
}

std::string header(const Options& options) {
  return fmt::format(
      "{} tokens a rank and step, {:.0f} TFLOP/s, {} by the simulator, contract {}\n\n"
      "{:>5} {:>6} {:<13} {:>8} {:>9} {:>10} {:>9} {:>9} {:>7} {:>8}\n",
      options.tokens, options.teraflops, options.machine, options.contract, "ranks", "model",
      "strategy", "GB held", "GB sent", fmt::format("ms at {:g}", options.rate), "calls ms",
      "comp. ms", "hidden", "step ms");
}

/// So many digits at least, without an exponent and zeros at the end.
std::string digits(double value, int least) {
  const int before = value > 0 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 1;
  std::string text = fmt::format("{:.{}f}", value, std::max(0, least - before));
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string text(const StepRow& row, const Options& options) {
  const double held = row.held_bytes / 1e9;
  return fmt::format(
      "{:>5} {:>6} {:<13} {:>8} {:>9} {:>10} {:>9} {:>9} {:>5.0f} % {:>8}\n", row.ranks,
      row.model->name, row.strategy, digits(held, 3) + (held > options.memory_gigabytes ? "!" : ""),
      digits(row.sent_bytes / 1e9, 3), digits(row.sent_bytes / 1e6 / options.rate, 4),
      digits(row.calls_us / 1e3, 4), digits(row.compute_us / 1e3, 4), 100 * row.hidden(),
      digits(row.step_us / 1e3, 4));
}

Json json(const StepRow& row) {
  return {{"ranks", row.ranks},           {"model", row.model->name},
          {"strategy", row.strategy},     {"held_bytes", row.held_bytes},
          {"sent_bytes", row.sent_bytes}, {"calls_us", row.calls_us},
          {"compute_us", row.compute_us}, {"step_us", row.step_us}};
}

Result<const Model*> model_named(const std::string& name) {
  for (const Model& model : kModels)
    if (model.name == name) return &model;
  return topology::invalid("--parameters: there is no model '{}'; known: 1B, 7B, 70B", name);
}

Result<int> run(const Options& options) {
  TUTTI_TRY(const Contract contract, contract_named(options.contract));
  std::vector<const Model*> models;
  for (const std::string& name : options.models) {
    TUTTI_TRY(models.emplace_back(), model_named(name));
  }
  auto all = Json::array();
  const std::size_t rows = options.ranks.size() * models.size() * std::size(kStrategies);
  std::size_t done = 0;
  for (const int ranks : options.ranks) {
    GraphSource source;
    source.model = options.machine;
    TUTTI_TRY(const RankedMachine machine, machine_for(source, ranks, 0));
    if (!options.json && done == 0) say("{}", header(options));
    Calls calls(machine, contract);
    for (const Model* model : models) {
      for (const std::string_view strategy : kStrategies) {
        show_progress(done++, rows, fmt::format("{} ranks, {}, {}", ranks, model->name, strategy));
        const auto row = step_of(calls, *model, strategy, options);
        if (!row) continue;
        clear_progress();
        if (options.json)
          all.push_back(json(*row));
        else
          say("{}", text(*row, options));
        flush_output();
      }
    }
  }
  if (options.json)
    say("{}\n", all.text({.indent = 1}));
  else
    say("\nms at {:g}: the bytes sent by a rank at {:g} GB/s. !: more than {:g} GB. Hierarchical "
        "needs several hosts.\n",
        options.rate, options.rate, options.memory_gigabytes);
  return 0;
}

}  // namespace

void define_step_time(const perf::Command& app, int& exit_code) {
  auto options = std::make_shared<Options>();
  const auto command = app.add_subcommand(
      "step-time", "How long a training step would take on a machine that need not be here");
  perf::offer(perf::add_shown(command, "--model", options->machine,
                              "A modelled system: hgx-h100, dgx-a100, ..."),
              model_words());
  command.add_option("--ranks", options->ranks, "Rank counts")
      .delimiter(',')
      .check(perf::range(2, 4096))
      .capture_default_str();
  command.add_option("--parameters", options->models, "Models: 1B, 7B, 70B parameters")
      .delimiter(',')
      .capture_default_str();
  const auto real = [&](const char* name, double& into, const char* words) {
    command.add_option(name, into, words).check(perf::positive_number()).capture_default_str();
  };
  real("--tokens", options->tokens, "Tokens of a rank and step");
  real("--tflops", options->teraflops, "What a rank computes, in 10^12 operations a second");
  real("--memory", options->memory_gigabytes, "A rank's memory in GB");
  real("--rate", options->rate, "GB/s for the arithmetic beside the simulation");
  perf::offer(perf::add_shown(command, "--contract", options->contract, "deterministic or relaxed"),
              contract_words());
  command.add_flag("--json", options->json, "As JSON");
  command.footer(
      "Examples:\n  tutti step-time\n"
      "  tutti step-time --model dgx-a100 --ranks 8,128 --parameters 7B --tflops 150");
  command.callback([options, &exit_code] {
    const Result<int> done = run(*options);
    if (!done) clear_progress();
    exit_code = exit_code_of(done, "step-time");
  });
}

}  // namespace tutti::tools
