#include "trainer/train.h"

#include <algorithm>
#include <chrono>

#include "trainer/worker.h"

namespace tutti::trainer {

Status check_options(const TrainOptions& options) {
  if (options.epochs >= 1 && options.batch >= 1 && options.accumulate >= 1 &&
      options.bucket_bytes >= 1)
    return ok();
  return Error{Code::kInvalidArgument,
               "epochs, batch, accumulate and bucket bytes must be at least 1"};
}

Outcome outcome_of(const Worker& worker, std::uint64_t weights_hash, double images,
                   double seconds) {
  return {.epochs = worker.state().epochs,
          .images_per_second = images / std::max(seconds, 1e-9),
          .hidden = worker.buckets().hidden(),
          .buckets = worker.buckets().count(),
          .straggler = {},
          .weights = worker.state().weights,
          .weights_hash = weights_hash};
}

Result<Outcome> train(Communicator& comm, const Split& data, const TrainOptions& options,
                      const std::function<void(int, int, const Epoch&)>& progress) {
  TUTTI_RETURN_IF_ERROR(check_options(options));
  Worker worker(data, options);
  TUTTI_RETURN_IF_ERROR(worker.use(comm));
  worker.initialise();
  TUTTI_RETURN_IF_ERROR(worker.hand_over(Rank{0}));  // The same already, if seeds are.
  TUTTI_TRY(const Counters before, comm.counters());
  const auto start = std::chrono::steady_clock::now();
  for (int epoch = 0; !worker.done();) {
    TUTTI_TRY(const auto figures, worker.advance());
    if (!figures) continue;
    ++epoch;
    if (comm.rank().value == 0) progress(epoch, options.epochs, *figures);
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  TUTTI_TRY(
      const Straggler straggler,
      find_straggler(comm, before, {std::max(seconds, 1e-9), worker.buckets().idle_seconds()}));
  TUTTI_TRY(const std::uint64_t hash, worker.check_replicas());
  Outcome outcome =
      outcome_of(worker, hash, static_cast<double>(data.train.size()) * options.epochs, seconds);
  outcome.straggler = straggler;
  return outcome;
}

}  // namespace tutti::trainer
