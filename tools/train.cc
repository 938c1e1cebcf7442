// tutti train: the reference consumer from the command line.
#include <fmt/format.h>
#include <unistd.h>

#include <optional>
#include <regex>
#include <thread>

#include "perf/command_line/command_line.h"
#include "tools/command.h"
#include "tools/progress.h"
#include "trainer/compare.h"
#include "trainer/elastic.h"

namespace tutti::tools {
namespace {

struct TrainCommand {
  trainer::TrainOptions options;
  int ranks = 0;
  double target = 0.97;
  std::string data, plot, json, slow_rank, precision = "f32", batch_norm = "sync";
  std::string elastic;  // The folder; empty: the ranks stay the same.
  bool joins = false;
  std::vector<std::string> compare;  // Strategies, instead of one.
  std::vector<int> scaling;          // Numbers of ranks, instead of one.
};

/// Adds options with limits.
struct Adder {
  perf::Command app;
  template <class T>
  void number(const char* name, T& into, const char* text, int least, int most) const {
    perf::add_number(app, name, into, text, least, most);
  }
  void real(const char* name, double& into, const char* text, double most) const {
    perf::add_shown(app, name, into, text).check(perf::range(0., most));
  }
  void word(const char* name, std::string& into, const std::string& text,
            const std::vector<std::string>& words) const {
    perf::add_word(app, name, into, text, words);
  }
};

/// A bar on a terminal, every fifth epoch elsewhere.
void show(int epoch, int epochs, const trainer::Epoch& done) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (!terminal && epoch % 5 != 0 && epoch != epochs) return;
  if (terminal) end_line_on_interrupt(STDOUT_FILENO);
  const int filled = 30 * epoch / epochs;
  const std::string bar =
      terminal ? fmt::format("\r[{:#<{}}{:.<{}}] ", "", filled, "", 30 - filled) : "";
  say("{}epoch {:>3} of {}  loss {:.4f}  test accuracy {:.2f} %{}", bar, epoch, epochs, done.loss,
      done.accuracy * 100, terminal && epoch != epochs ? "" : "\n");
  flush_output();
}

Result<trainer::Outcome> run_rank(Communicator& comm, const TrainCommand& command,
                                  const trainer::Split& data) {
  const bool alone = command.compare.empty() && command.scaling.empty();
  auto outcome = trainer::train(
      comm, data, command.options, alone ? show : [](int, int, const trainer::Epoch&) {});
  // A rank that gives up tells the others, which would wait for it.
  if (!outcome) comm.abort(outcome.error().what);
  return outcome;
}

/// All ranks as threads of this process; rank 0's outcome, or the first error.
Result<trainer::Outcome> run_threads(const TrainCommand& command, int ranks,
                                     const trainer::Split& data) {
  TUTTI_TRY(const auto settings, Settings::from_environment());
  TUTTI_TRY(auto comms, Communicator::in_process(ranks, settings));
  std::vector<std::optional<Result<trainer::Outcome>>> outcomes(comms.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank) {
      threads.emplace_back(
          [&, rank] { outcomes[rank].emplace(run_rank(comms[rank], command, data)); });
    }
  }
  for (auto& outcome : outcomes) {
    if (!*outcome) return std::move(outcome->error());
  }
  return *std::move(*outcomes.front());
}

double samples_of(const trainer::TrainOptions& options, const trainer::Split& data) {
  return static_cast<double>(data.train.size()) * options.epochs;
}

std::vector<std::string> strategy_words() {
  std::vector<std::string> words;
  for (const trainer::StrategyInfo& info : trainer::strategies()) words.emplace_back(info.name);
  return words;
}

/// Several strategies on one task.
Result<int> compare(TrainCommand command, const trainer::Split& data) {
  std::vector<std::string> names = command.compare;
  if (names.size() == 1 && names[0] == "all") names = strategy_words();
  const int ranks = command.ranks == 0 ? 2 : command.ranks;
  for (const std::string& name : names) {  // Before the first of them trains.
    command.options.strategy.name = name;
    TUTTI_RETURN_IF_ERROR(trainer::check_ranks(command.options, ranks));
  }
  std::vector<trainer::Compared> runs;
  for (const std::string& name : names) {
    command.options.strategy.name = name;
    TUTTI_TRY(auto outcome, run_threads(command, ranks, data));
    runs.push_back({name, std::move(outcome), ranks, samples_of(command.options, data)});
  }
  say("{} ranks; memory of rank 0 in KB\n{}", ranks, trainer::comparison_table(runs));
  if (!command.plot.empty())
    TUTTI_RETURN_IF_ERROR(write_text(command.plot, trainer::comparison_plot(runs)));
  return 0;
}

/// As many trainings of one rank as there would be ranks, at the same time and each with what one
/// rank would compute: the samples of all of them in a second.
Result<double> run_apart(TrainCommand command, int ranks, const trainer::Split& data) {
  const auto count = static_cast<std::size_t>(ranks);
  trainer::TrainOptions& options = command.options;
  options.batch = std::max<std::size_t>(1, options.batch / count);
  options.slices = std::max<std::size_t>(1, options.slices / count);
  options.strategy.name = "ddp";  // Some need several ranks.
  if (options.slow_rank > 0) options.slow_rank = -1;
  trainer::Split part = data;
  for (trainer::Samples* samples : {&part.train, &part.test}) {
    const std::size_t kept = std::max<std::size_t>(1, samples->size() / count);
    samples->inputs.resize(kept * samples->inputs_each);
    samples->labels.resize(kept * samples->labels_each);
  }
  std::vector<std::optional<Result<trainer::Outcome>>> outcomes(count);
  {
    std::vector<std::jthread> threads;
    for (auto& outcome : outcomes)
      threads.emplace_back([&] { outcome.emplace(run_threads(command, 1, part)); });
  }
  double speed = 0;
  for (auto& outcome : outcomes) {
    if (!*outcome) return std::move(outcome->error());
    const trainer::Compared run{"", *std::move(*outcome), 1, samples_of(options, part)};
    speed += run.speed();
  }
  return speed;
}

/// Several numbers of ranks: with one batch in all (strong), then with one for each rank (weak).
Result<int> scale(TrainCommand command, const trainer::Split& data) {
  for (const int ranks : command.scaling)  // Before the first of them trains.
    TUTTI_RETURN_IF_ERROR(trainer::check_ranks(command.options, ranks));
  const std::size_t batch = command.options.batch;
  std::vector<trainer::Scaling> all{{"strong", {}}, {"weak", {}}};
  for (trainer::Scaling& scaling : all) {
    const bool weak = scaling.name == "weak";
    for (const int ranks : command.scaling) {
      command.options.batch = weak ? batch * static_cast<std::size_t>(ranks) : batch;
      TUTTI_TRY(auto outcome, run_threads(command, ranks, data));
      scaling.runs.push_back({fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"),
                              std::move(outcome), ranks, samples_of(command.options, data)});
      trainer::Compared& run = scaling.runs.back();
      run.apart = run.speed();
      if (ranks == 1) continue;
      TUTTI_TRY(run.apart, run_apart(command, ranks, data));
    }
    say("{} scaling, a batch of {}{}; milliseconds of a step\n{}", scaling.name, batch,
        weak ? " for each rank" : "", trainer::scaling_table(scaling.runs));
  }
  if (!command.plot.empty())
    TUTTI_RETURN_IF_ERROR(write_text(command.plot, trainer::scaling_plot(all)));
  if (!command.json.empty())
    TUTTI_RETURN_IF_ERROR(write_text(command.json, trainer::scaling_json(all)));
  return 0;
}

/// The exit code.
Result<int> report(const TrainCommand& command, const trainer::Outcome& outcome, int ranks) {
  const double accuracy = outcome.epochs.back().accuracy;
  const trainer::Phases& phases = outcome.phases;
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, outcome.steps));
  say("{} rank{}, {}: {:.2f} % of the test right (target {:.0f} %), {:.0f} samples/s, weights "
      "{:016x}; replicas identical\n",
      ranks, ranks == 1 ? "" : "s", command.options.strategy.name, accuracy * 100,
      command.target * 100, outcome.samples_per_second, outcome.weights_hash);
  const std::string why = trainer::why_exposed(outcome, ranks);
  say("a step takes {:.2f} ms: {:.2f} computing, {:.2f} waiting for communication; {:.0f} % of "
      "communication hidden{}{}\n",
      phases.steps_s / steps * 1e3, phases.compute_s / steps * 1e3, phases.exposed_s / steps * 1e3,
      phases.hidden() * 100, why.empty() ? "" : ", as ", why);
  const auto held = [&](trainer::Holds what) {
    return static_cast<double>(outcome.memory.most(what)) / 1e3;
  };
  say("a rank sends {:.1f} KB a step and holds {:.1f} KB of parameters, {:.1f} of gradients, "
      "{:.1f} "
      "of the optimiser's, {:.1f} for a while{}{}\n",
      outcome.epochs.back().bytes / steps / 1e3, held(trainer::Holds::kParameters),
      held(trainer::Holds::kGradients), held(trainer::Holds::kOptimiser),
      held(trainer::Holds::kTransient), outcome.note.empty() ? "" : "; ", outcome.note);
  if (const trainer::Straggler& late = outcome.straggler; late.rank >= 0)
    say("rank {} came last to {:.0f} % of the calls; the others waited for it {:.1f} % of the "
        "time\n",
        late.rank, late.last_share * 100, late.time_share * 100);
  if (!command.plot.empty())
    TUTTI_RETURN_IF_ERROR(write_text(command.plot, trainer::plot_of(outcome, ranks)));
  if (!command.json.empty()) {
    TUTTI_RETURN_IF_ERROR(
        write_text(command.json, trainer::json_of(outcome, command.options, ranks)));
  }
  if (accuracy >= command.target) return 0;
  say_error("tutti train: the target accuracy was not reached\n");
  return 1;
}

/// The ranks may change. Each says what it has come to.
Result<int> train_elastic(const TrainCommand& command, const trainer::Split& data) {
  trainer::ElasticOptions elastic{.folder = command.elastic, .progress = show};
  elastic.say = [](const std::string& line) { say_error("tutti train: {}\n", line); };
  TUTTI_TRY(elastic.settings, Settings::from_environment());
  std::optional<Communicator> comm;
  if (!command.joins) {
    TUTTI_TRY(comm, Communicator::from_environment());
  }
  TUTTI_TRY(const auto done,
            trainer::train_elastic(std::move(comm), data, command.options, elastic));
  say("weights {:016x} on rank {} of {}\n", done.outcome.weights_hash, done.rank, done.ranks);
  return done.rank == 0 ? report(command, done.outcome, done.ranks) : 0;
}

/// What is given in words.
Status read_words(TrainCommand& command) {
  trainer::TrainOptions& options = command.options;
  if (command.precision == "bf16") options.strategy.precision = DataType::kBfloat16;
  options.sync_batch_norm = command.batch_norm == "sync";
  options.strategy.broadcast_buffers = !options.sync_batch_norm;
  if (command.slow_rank.empty()) return ok();
  static const std::regex form("([0-9]{1,4}):([0-9]{1,5})ms");
  std::smatch parts;
  if (!std::regex_match(command.slow_rank, parts, form))
    return invalid("--slow-rank {}: write rank and milliseconds, as in 1:20ms", command.slow_rank);
  options.slow_rank = std::stoi(parts[1]);
  options.slow_by = std::chrono::milliseconds(std::stoi(parts[2]));
  return ok();
}

Result<int> train(TrainCommand& command) {
  TUTTI_RETURN_IF_ERROR(read_words(command));
  TUTTI_TRY(const auto launch, detect_launch());
  const bool launched = !launch.launcher.empty();
  const bool on_disk = !command.options.checkpoint.empty() || !command.options.resume.empty();
  if (on_disk && !command.elastic.empty())
    return invalid("--elastic has no --checkpoint and no --resume: ranks hand over the state");
  if (command.joins && command.elastic.empty())
    return invalid("--join needs --elastic FOLDER, the folder of the ranks that train already");
  if (!command.elastic.empty() && command.ranks > 0) {
    return invalid(
        "--elastic is for ranks that are processes: leave --ranks out, and start them by "
        "tutti run --elastic");
  }
  if (launched && command.ranks > 0)
    return invalid("started by {}, which says how many ranks there are: leave --ranks out",
                   launch.launcher);
  if (!launched || launch.rank.value == 0)  // Rank 0 writes.
    TUTTI_RETURN_IF_ERROR(check_outputs({{"--plot", command.plot}, {"--json", command.json}}));
  const bool text = command.options.model.name == "transformer";
  const std::string path = !command.data.empty() ? command.data
                           : text                ? trainer::default_text_path()
                                                 : trainer::default_data_path();
  TUTTI_TRY(const auto samples, text ? trainer::read_text(path) : trainer::read_digits(path));
  const trainer::Split data = trainer::split(samples, command.options.seed);
  const bool several = !command.compare.empty() || !command.scaling.empty();
  if (several && (launched || !command.elastic.empty()))
    return invalid("--compare and --scaling are for ranks that are threads: start one process");
  if (!command.compare.empty()) return compare(command, data);
  if (!command.scaling.empty()) return scale(command, data);
  if (!command.elastic.empty()) return train_elastic(command, data);
  if (!launched) {
    const int ranks = std::max(command.ranks, 1);
    TUTTI_TRY(const auto outcome, run_threads(command, ranks, data));
    return report(command, outcome, ranks);
  }
  TUTTI_TRY(auto comm, Communicator::from_environment());
  TUTTI_TRY(const auto outcome, run_rank(comm, command, data));
  return comm.rank().value == 0 ? report(command, outcome, comm.rank_count()) : 0;
}

int run_train(TrainCommand& command) {
  const auto code = train(command);
  if (code) return *code;
  say_error("tutti train: {}\n", code.error().to_string());
  return code.error().code == Code::kInvalidArgument ? kUsage : 1;
}

void add_strategy_options(const Adder& add, TrainCommand& command) {
  trainer::StrategyOptions& way = command.options.strategy;
  std::string texts = "Strategies:\n";
  for (const trainer::StrategyInfo& info : trainer::strategies())
    texts += fmt::format("  {:<13}{}\n", info.name, info.text);
  add.word("--strategy", way.name, "How ranks share the work, see below", strategy_words());
  add.app.footer(texts + "\n" + add.app.get_footer());
  add.number("--accumulate", command.options.accumulate, "Batches between two synchronisations", 1,
             1000);
  add.number("--bucket-bytes", way.bucket_bytes, "Gradient bytes that are reduced together", 4,
             1 << 30);
  add.app.add_flag("--find-unused", way.find_unused, "ddp: ranks may leave units out");
  add.real("--drop-units", command.options.drop_units,
           "How often a rank leaves a block out (stochastic depth)", 1);
  add.number("--cycle-us", way.cycle_us, "horovod: microseconds between two looks", 0, 1000000);
  add.app.add_flag("--adasum", way.adasum, "horovod: adaptive summation in place of a sum");
  add.word("--precision", command.precision, "fsdp: f32, or bf16 for mixed precision",
           {"f32", "bf16"});
  add.app.add_flag("!--no-reshard", way.reshard, "fsdp: keep parameters from forward to backward");
  add.number("--group-ranks", way.group_ranks, "hierarchical: ranks of a group", 1, 64);
  add.number("--servers", way.servers, "ps, async_ps, dcasgd: ranks that are servers", 1, 63);
  add.number("--staleness", way.staleness, "async_ps, dcasgd: steps that a worker may be ahead", 0,
             100000);
  add.number("--local-steps", way.local_steps, "local: steps between two averages", 1, 100000);
  add.number("--post-local-steps", way.post_local_steps, "local: steps with an average each before",
             0, 1000000);
  add.real("--outer-rate", way.outer_rate, "local: rate of the outer optimiser (DiLoCo)", 100);
  add.real("--outer-momentum", way.outer_momentum, "local: its Nesterov momentum", 1);
  add.app
      .add_option("--slow-rank", command.slow_rank,
                  "A rank that sleeps in each step, to see what stragglers do, as 1:20ms")
      .type_name("RANK:TIME");
}

void add_model_options(const Adder& add, TrainCommand& command) {
  trainer::TrainOptions& o = command.options;
  add.word("--model", o.model.name, "mlp, conv, or transformer, which learns a text",
           {"mlp", "conv", "transformer"});
  add.number("--width", o.model.width, "A hidden layer's; 0: what the model has", 0, 8192);
  add.number("--depth", o.model.depth, "Hidden layers or blocks; 0: what the model has", 0, 256);
  add.word("--batch-norm", command.batch_norm, "Over the batch of all ranks (sync), or local",
           {"sync", "local"});
  add.word("--optimiser", o.strategy.optimiser.name, "sgd, adam, lars or lamb",
           {"sgd", "adam", "lars", "lamb"});
  add.number("--epochs", o.epochs, "Passes over the training samples", 1, 100000);
  add.number("--batch", o.batch, "Samples of a step, over all ranks together", 1, 100000);
  add.number("--slices", o.slices,
             "Parts of a batch; numbers of ranks that divide it get the same bits", 1, 1024);
  add.real("--learning-rate", o.rate.peak, "Highest learning rate; 0: the optimiser's own", 100);
  add.real("--warm-up-epochs", o.rate.warm_up_epochs, "Epochs until the highest learning rate",
           1000);
  add.number("--reference-batch", o.rate.reference_batch,
             "The learning rate grows with --batch over this one; 0: it does not", 0, 100000);
  add.real("--momentum", o.strategy.optimiser.momentum, "Momentum", 1);
  add.real("--weight-decay", o.strategy.optimiser.weight_decay, "Weight decay", 1);
  perf::add_shown(add.app, "--seed", o.seed, "Seed of split, weights and order");
  add.app.add_option("--data", command.data, "CSV of 64 pixels and a digit a line, or a text")
      .type_name("FILE");
}

}  // namespace

void define_train(const perf::Command& app, int& exit_code) {
  auto command = std::make_shared<TrainCommand>();
  const auto train =
      app.add_subcommand("train", "Train a small network on real digits, data-parallel");
  train.footer(
      "Examples:\n  tutti train --ranks 2\n  tutti train --ranks 4 --epochs 10 --plot digits.svg\n"
      "  tutti train --compare ddp,zero3,local --ranks 4 --plot bytes.svg\n"
      "  tutti train --model transformer --optimiser adam --scaling 1,2\n"
      "  tutti run -n 2 -- tutti train\n  mpirun -n 2 tutti train\n"
      "  tutti run --elastic -n 4 -- tutti train --elastic /tmp/meet\n"
      "  tutti train --elastic /tmp/meet --join");
  train
      .add_option("--ranks", command->ranks,
                  "Ranks, as threads of this process (not under a launcher)")
      .check(perf::range(1, 64));
  const Adder add{train};
  add_model_options(add, *command);
  add_strategy_options(add, *command);
  add.real("--target-accuracy", command->target, "Exit code 1 below this", 1);
  train
      .add_option("--elastic", command->elastic,
                  "Go on when ranks are lost, and take in new ones, which leave a file in this "
                  "folder")
      .type_name("FOLDER")
      .check(perf::existing_directory().description(""));
  train.add_flag("--join", command->joins, "Be such a new rank");
  std::vector<std::string> compared = strategy_words();
  compared.emplace_back("all");
  perf::offer(train
                  .add_option("--compare", command->compare,
                              "Train with each of these strategies, or all, and print a table")
                  .delimiter(',')
                  .type_name("STRATEGY,...")
                  .check(perf::is_member(compared).description("")),
              compared);
  train
      .add_option("--scaling", command->scaling,
                  "Train on each of these numbers of ranks, and print tables")
      .delimiter(',')
      .type_name("RANKS,...")
      .check(perf::range(1, 64).description(""));
  train.add_option("--plot", command->plot, "Write a picture (SVG)").type_name("FILE");
  train.add_option("--json", command->json, "Write the history as JSON").type_name("FILE");
  train
      .add_option("--checkpoint", command->options.checkpoint,
                  "Write the state into this folder after every epoch; all ranks see it")
      .type_name("FOLDER");
  train
      .add_option("--resume", command->options.resume,
                  "Go on from a checkpoint, on as many ranks and by what strategy you like")
      .type_name("FOLDER")
      .check(perf::existing_directory().description(""));
  train.callback([command, &exit_code] { exit_code = run_train(*command); });
}

}  // namespace tutti::tools
