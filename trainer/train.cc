#include "trainer/train.h"

#include <sched.h>

#include <algorithm>
#include <chrono>

#include "trainer/checkpoint.h"
#include "trainer/strategies/ps.h"
#include "trainer/worker.h"

namespace tutti::trainer {

Status check_options(const TrainOptions& options) {
  const auto refuse = [](const char* what) { return Error{Code::kInvalidArgument, what}; };
  if (options.epochs < 1 || options.batch < 1 || options.accumulate < 1 || options.slices < 1 ||
      options.strategy.bucket_bytes < 1)
    return refuse("epochs, batch, accumulate, slices and bucket bytes must be at least 1");
  const StrategyOptions& strategy = options.strategy;
  if (strategy.local_steps < 1 || strategy.group_ranks < 1 || strategy.servers < 1 ||
      strategy.staleness < 0 || strategy.cycle_us < 0)
    return refuse("local steps, group ranks and servers must be at least 1, others at least 0");
  if (options.drop_units > 0 && (strategy.name != "ddp" || !strategy.find_unused))
    return refuse("ranks can leave units out with strategy ddp and find_unused only");
  if (strategy.precision != DataType::kFloat32 &&
      (strategy.name != "fsdp" || strategy.precision != DataType::kBfloat16))
    return refuse("the precision is float32, or bfloat16 with strategy fsdp");
  return ok();
}

Status check_ranks(const TrainOptions& options, int ranks) {
  const auto refuse = [](const std::string& what) { return Error{Code::kInvalidArgument, what}; };
  const StrategyOptions& strategy = options.strategy;
  if (options.slow_rank >= ranks)
    return refuse("rank " + std::to_string(options.slow_rank) + " can't be slow: there " +
                  (ranks == 1 ? "is rank 0 alone" : "are ranks 0 to " + std::to_string(ranks - 1)));
  if (strategy.name != "ps" && strategy.name != "async_ps" && strategy.name != "dcasgd")
    return ok();
  return check_servers(strategy.servers, static_cast<std::size_t>(ranks));
}

Result<Outcome> outcome_of(Worker& worker, double samples, double seconds) {
  Outcome outcome{.epochs = worker.epochs(),
                  .samples_per_second = samples / std::max(seconds, 1e-9),
                  .phases = worker.phases(),
                  .steps = worker.steps_done(),
                  .memory = worker.memory(),
                  .note = worker.strategy().note(),
                  .straggler = {},
                  .weights = {},
                  .weights_hash = 0};
  TUTTI_TRY(outcome.weights_hash, worker.check_replicas(outcome.weights));
  return outcome;
}

Result<Outcome> train(Communicator& comm, const Split& data, const TrainOptions& options,
                      const std::function<void(int, int, const Epoch&)>& progress) {
  TUTTI_RETURN_IF_ERROR(check_options(options));
  TUTTI_RETURN_IF_ERROR(check_ranks(options, comm.rank_count()));
  TUTTI_TRY(const Network network, make_network(options.model, data.train));
  Worker worker(data, options, network);
  TUTTI_RETURN_IF_ERROR(worker.use(comm));
  if (!options.checkpoint.empty()) TUTTI_RETURN_IF_ERROR(may_checkpoint(comm, options.checkpoint));
  if (!options.resume.empty()) TUTTI_RETURN_IF_ERROR(resume(worker, comm, options.resume));
  const auto resumed = static_cast<int>(worker.epochs().size());
  if (worker.done()) {
    return Error{Code::kInvalidArgument, "checkpoint: " + std::to_string(resumed) +
                                             " epochs are done already: ask for more of them"};
  }
  TUTTI_TRY(const Counters before, comm.counters());
  const auto start = std::chrono::steady_clock::now();
  while (!worker.done()) {
    TUTTI_TRY(const auto figures, worker.advance());
    if (figures && comm.rank().value == 0)
      progress(static_cast<int>(worker.epochs().size()), options.epochs, *figures);
    if (figures && !options.checkpoint.empty())
      TUTTI_RETURN_IF_ERROR(save_checkpoint(worker, comm, options.checkpoint));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TUTTI_TRY(const Straggler straggler,
            find_straggler(comm, before, {std::max(seconds, 1e-9), worker.phases().exposed_s}));
  TUTTI_TRY(Outcome outcome,
            outcome_of(worker, static_cast<double>(data.train.size()) * (options.epochs - resumed),
                       seconds));
  outcome.straggler = straggler;
  return outcome;
}

std::string why_exposed(const Outcome& outcome, int ranks_here) {
  const Phases& phases = outcome.phases;
  if (phases.communicating_s <= 0 || phases.hidden() >= 0.005) return {};
  cpu_set_t cpus;
  const int count = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
  if (count > 0 && ranks_here >= count) {
    return "no CPU is free for it: " + std::to_string(ranks_here) + " ranks compute on " +
           std::to_string(count) + " CPUs";
  }
  return "this strategy waits for its calls where it makes them";
}

}  // namespace tutti::trainer
