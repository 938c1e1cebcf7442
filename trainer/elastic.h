// File: trainer/elastic.h: training that outlives the loss of ranks, and takes in new ones.
//
// When a call fails, the ranks that are left shrink the communicator, agree on the last turn
// (worker.h) that all of them have done, and go on from there. New ranks leave a unique id in a
// folder. Before each epoch rank 0 looks there, all ranks grow the communicator, and one of them
// hands its state over.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "trainer/train.h"

namespace tutti::trainer {

struct ElasticOptions {
  std::string folder;  // Where new ranks announce themselves; the same on all ranks.
  Settings settings = {};
  /// What happened, in one line, on each rank that it concerns.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  std::function<void(int, int, const Epoch&)> progress;  // As in `train`.
};

struct ElasticOutcome {
  Outcome outcome;
  int rank = 0, ranks = 1;  // At the end.
};

/// Trains with the ranks of `comm`; without one, joins those that train at options.folder already.
/// An epoch in which a rank was lost misses that rank's share in its loss.
Result<ElasticOutcome> train_elastic(std::optional<Communicator> comm, const Split& data,
                                     const TrainOptions& options, const ElasticOptions& elastic);

}  // namespace tutti::trainer
