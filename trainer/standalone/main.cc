// The trainer outside the project: `tutti_train STRATEGY [RANKS]` trains on digits with ranks that
// are threads, or, under a launcher, with the launcher's. The data file is TUTTI_DIGITS, set when
// this is built.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "trainer/train.h"

namespace {

using namespace tutti;

int fail(const Error& error) {
  std::fprintf(stderr, "tutti_train: %s\n", error.to_string().c_str());
  return 1;
}

Result<trainer::Outcome> run(Communicator& comm, const trainer::Split& data,
                             const trainer::TrainOptions& options) {
  auto outcome = trainer::train(comm, data, options, [](int epoch, int epochs, const auto& done) {
    std::printf("epoch %d of %d: accuracy %.2f %%\n", epoch, epochs, done.accuracy * 100);
  });
  // A rank that gives up tells the others, which would wait for it.
  if (!outcome) comm.abort(outcome.error().what);
  return outcome;
}

/// All ranks as threads; rank 0's outcome, or the first error.
Result<trainer::Outcome> run_threads(int ranks, const trainer::Split& data,
                                     const trainer::TrainOptions& options) {
  TUTTI_TRY(auto comms, Communicator::in_process(ranks));
  std::vector<std::optional<Result<trainer::Outcome>>> outcomes(comms.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < comms.size(); ++rank)
      threads.emplace_back([&, rank] { outcomes[rank].emplace(run(comms[rank], data, options)); });
  }
  for (auto& outcome : outcomes) {
    if (!*outcome) return std::move(outcome->error());
  }
  return *std::move(*outcomes.front());
}

}  // namespace

int main(int argc, char** argv) {
  const auto digits = trainer::read_digits(TUTTI_DIGITS);
  if (!digits) return fail(digits.error());
  const trainer::Split data = trainer::split(*digits, 1);
  trainer::TrainOptions options;
  options.epochs = 6;
  if (argc > 1) options.strategy.name = argv[1];
  const int ranks = argc > 2 ? std::atoi(argv[2]) : 0;
  Result<trainer::Outcome> outcome = Error{};
  if (ranks > 0) {
    outcome = run_threads(ranks, data, options);
  } else {
    auto comm = Communicator::from_environment();
    if (!comm) return fail(comm.error());
    outcome = run(*comm, data, options);
  }
  if (!outcome) return fail(outcome.error());
  std::printf("weights %016llx\n", static_cast<unsigned long long>(outcome->weights_hash));
  return outcome->epochs.back().accuracy >= 0.9 ? 0 : 1;
}
