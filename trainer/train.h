// File: trainer/train.h: data-parallel training, the reference consumer of the library.
//
// The rooms: models/ (networks as rows of units), optimisers/, strategies/ (where parameters and
// gradients are, and when ranks communicate), and here the loop that joins them: passes.h computes
// a batch, worker.h is one rank's part, this file trains as many epochs as asked for.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "trainer/data.h"
#include "trainer/memory.h"
#include "trainer/models/network.h"
#include "trainer/optimisers/optimiser.h"
#include "trainer/stragglers.h"
#include "trainer/strategies/strategy.h"
#include "tutti/communicator.h"

namespace tutti::trainer {

struct TrainOptions {
  int epochs = 30;
  std::size_t batch = 64;   // Samples of a step, over all ranks together.
  int accumulate = 1;       // Batches whose gradients are added up before ranks synchronise.
  std::size_t slices = 16;  // Parts of a batch, see passes.h. More ranks leave some idle.
  ModelOptions model;
  StrategyOptions strategy;
  RateOptions rate;
  bool sync_batch_norm = true;  // Over the batch of all ranks, not of one.
  double drop_units = 0;        // Stochastic depth: how often a rank leaves a block out.
  std::uint64_t seed = 1;
  std::string checkpoint;  // A folder for a checkpoint after every epoch; empty: none.
  std::string resume;      // The folder of the one to go on from.
  int slow_rank = -1;      // This rank sleeps so long in each step, to see what stragglers do.
  std::chrono::microseconds slow_by{};
};

struct Epoch {
  double loss = 0, accuracy = 0;
  double bytes = 0;  // Sent by this rank since training began (traffic.h).
};

/// Where the seconds of the steps went; evaluation is not among them.
struct Phases {
  double steps_s = 0;
  double compute_s = 0;        // In layers.
  double exposed_s = 0;        // Waiting for communication.
  double communicating_s = 0;  // With a call under way, seen or hidden.
  /// Share of communication that other work hid, 0 to 1.
  double hidden() const {
    return communicating_s > 0 ? std::clamp(1 - exposed_s / communicating_s, 0.0, 1.0) : 0;
  }
};

/// What training has come to.
struct Outcome {
  std::vector<Epoch> epochs;
  double samples_per_second = 0;
  Phases phases;
  std::uint64_t steps = 0;
  Ledger memory;
  std::string note;  // The strategy's.
  Straggler straggler;
  std::vector<float> weights;
  std::uint64_t weights_hash = 0;  // The same where the bits are.
};

/// Trains on all ranks of `comm`; every rank gets the same outcome, but for its own times, bytes
/// and memory. `progress(epoch, epochs, last)` is called on rank 0 after every epoch. An error if
/// replicas differ at the end.
Result<Outcome> train(Communicator& comm, const Split& data, const TrainOptions& options,
                      const std::function<void(int, int, const Epoch&)>& progress);

/// kInvalidArgument if something is 0 that must not be.
Status check_options(const TrainOptions& options);
/// kInvalidArgument if the options name a rank that is not there, or more servers than there can
/// be.
Status check_ranks(const TrainOptions& options, int ranks);

/// Why no communication was hidden, where none was and there was some; else empty. `ranks_here`:
/// ranks on this host.
std::string why_exposed(const Outcome& outcome, int ranks_here);

/// A picture of loss and accuracy by epoch (SVG).
std::string plot_of(const Outcome& outcome, int ranks);
/// The history as JSON.
std::string json_of(const Outcome& outcome, const TrainOptions& options, int ranks);

}  // namespace tutti::trainer
