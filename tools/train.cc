// tutti train: the reference consumer from the command line.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <thread>

#include "tools/command.h"
#include "trainer/train.h"

namespace tutti::tools {
namespace {

struct TrainCommand {
  trainer::TrainOptions options;
  int ranks = 0;
  double target = 0.97;
  std::string data = trainer::default_data_path(), plot, json;
};

/// Like CLI::Range, which lets pass what is not a number.
CLI::Validator between(double low, double high) {
  return CLI::Validator(
      [low, high](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= low && value <= high) return {};
        return fmt::format("'{}' is not a number from {} to {}", text, low, high);
      },
      fmt::format("[{} - {}]", low, high));
}

int complain(const Error& error) {
  say_error("tutti train: {}\n", error.to_string());
  return error.code == Code::kInvalidArgument ? kUsage : 1;
}

/// A bar on a terminal, every fifth epoch elsewhere.
void show(int epoch, int epochs, const trainer::Epoch& done) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  if (!terminal && epoch % 5 != 0 && epoch != epochs) return;
  const int filled = 30 * epoch / epochs;
  const std::string bar =
      terminal ? fmt::format("\r[{:#<{}}{:.<{}}] ", "", filled, "", 30 - filled) : "";
  say("{}epoch {:>3} of {}  loss {:.4f}  test accuracy {:.2f} %{}", bar, epoch, epochs, done.loss,
      done.accuracy * 100, terminal && epoch != epochs ? "" : "\n");
  flush_output();
}

Result<trainer::Outcome> run_rank(Communicator& comm, const TrainCommand& command,
                                  const trainer::Split& data) {
  auto outcome = trainer::train(comm, data, command.options, show);
  // A rank that gives up tells the others, which would wait for it.
  if (!outcome) comm.abort(outcome.error().what);
  return outcome;
}

/// All ranks as threads of this process; rank 0's outcome, or the first error.
Result<trainer::Outcome> run_threads(const TrainCommand& command, const trainer::Split& data) {
  TUTTI_TRY(const auto settings, Settings::from_environment());
  TUTTI_TRY(auto comms, Communicator::in_process(command.ranks, settings));
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

int report(const TrainCommand& command, const trainer::Outcome& outcome, int ranks) {
  const double accuracy = outcome.epochs.back().accuracy;
  say("{} rank{}: {:.2f} % of the test images right (target {:.0f} %), {:.0f} images/s, {:.0f} % "
      "of "
      "communication "
      "hidden, {} buckets; replicas identical\n",
      ranks, ranks == 1 ? "" : "s", accuracy * 100, command.target * 100, outcome.images_per_second,
      outcome.hidden * 100, outcome.buckets);
  if (!command.plot.empty()) {
    if (auto status = write_text(command.plot, trainer::plot_of(outcome, ranks)); !status)
      return complain(status.error());
  }
  if (!command.json.empty()) {
    const auto text = trainer::json_of(outcome, command.options, ranks);
    if (auto status = write_text(command.json, text); !status) return complain(status.error());
  }
  if (accuracy >= command.target) return 0;
  say_error("tutti train: the target accuracy was not reached\n");
  return 1;
}

int run_train(TrainCommand command) {
  const auto launch = detect_launch();
  if (!launch) return complain(launch.error());
  if (!launch->launcher.empty() && command.ranks > 0) {
    return complain({Code::kInvalidArgument,
                     "started by " + launch->launcher +
                         ", which says how many ranks there are: leave --ranks out",
                     {},
                     {}});
  }
  if (launch->launcher.empty() || launch->rank.value == 0) {  // Rank 0 writes.
    const Status files = check_outputs({{"--plot", command.plot}, {"--json", command.json}});
    if (!files) return complain(files.error());
  }
  const auto digits = trainer::read_digits(command.data);
  if (!digits) return complain(digits.error());
  const trainer::Split data = trainer::split(*digits, command.options.seed);
  if (launch->launcher.empty()) {
    command.ranks = std::max(command.ranks, 1);
    const auto outcome = run_threads(command, data);
    return outcome ? report(command, *outcome, command.ranks) : complain(outcome.error());
  }
  auto comm = Communicator::from_environment();
  if (!comm) return complain(comm.error());
  const auto outcome = run_rank(*comm, command, data);
  if (!outcome) return complain(outcome.error());
  return comm->rank().value == 0 ? report(command, *outcome, comm->rank_count()) : 0;
}

}  // namespace

void define_train(CLI::App& app, int& exit_code) {
  auto command = std::make_shared<TrainCommand>();
  CLI::App* train =
      app.add_subcommand("train", "Train a small network on real digits, data-parallel");
  train->footer(
      "Examples:\n  tutti train --ranks 2\n  tutti train --ranks 4 --epochs 10 --plot digits.svg\n"
      "  tutti run -n 2 -- tutti train\n  mpirun -n 2 tutti train");
  trainer::TrainOptions& o = command->options;
  train
      ->add_option("--ranks", command->ranks,
                   "Ranks, as threads of this process (not under a launcher)")
      ->check(CLI::Range(1, 64));
  train->add_option("--epochs", o.epochs, "Passes over the training images")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  train->add_option("--batch", o.batch, "Images of a step, over all ranks together")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  train->add_option("--accumulate", o.accumulate, "Batches between two synchronisations")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  train->add_option("--learning-rate", o.learning_rate, "Highest learning rate")
      ->check(between(0, 100))
      ->capture_default_str();
  train->add_option("--momentum", o.momentum, "Momentum")
      ->check(between(0, 1))
      ->capture_default_str();
  train->add_option("--weight-decay", o.weight_decay, "Weight decay")
      ->check(between(0, 1))
      ->capture_default_str();
  train->add_option("--bucket-bytes", o.bucket_bytes, "Gradient bytes that are reduced together")
      ->check(CLI::Range(4, 1 << 30))
      ->capture_default_str();
  train->add_option("--seed", o.seed, "Seed of split, weights and order")->capture_default_str();
  train->add_option("--data", command->data, "CSV of 64 pixels and a digit a line")
      ->capture_default_str();
  train->add_option("--target-accuracy", command->target, "Exit code 1 below this")
      ->check(between(0, 1))
      ->capture_default_str();
  train->add_option("--plot", command->plot, "Write a picture (SVG)");
  train->add_option("--json", command->json, "Write the history as JSON");
  train->callback([command, &exit_code] { exit_code = run_train(*command); });
}

}  // namespace tutti::tools
