// File: trainer/train.h: data-parallel stochastic gradient descent, the reference consumer of the
// library.
//
// The global batch of a step is cut into kSlices fixed slices. A rank adds up its slices' gradients
// as a balanced binary tree, and the all-reduce goes on with the tree over ranks, which is the
// canonical order. So with 1, 2, 4, 8 or 16 ranks the weights are the same to the last bit; with
// other counts the slices group differently, and the weights agree to rounding.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "trainer/data.h"
#include "trainer/stragglers.h"
#include "tutti/communicator.h"

namespace tutti::trainer {

inline constexpr std::size_t kSlices = 16;

struct TrainOptions {
  int epochs = 30;
  std::size_t batch = 64;  // Images of a step, over all ranks together.
  int accumulate = 1;      // Batches whose gradients are added up before ranks synchronise.
  double learning_rate = 0.15;
  double momentum = 0.9;
  double weight_decay = 1e-4;
  std::size_t bucket_bytes = std::size_t{1} << 20;
  std::uint64_t seed = 1;
};

struct Epoch {
  double loss = 0, accuracy = 0;
};

struct Outcome {
  std::vector<Epoch> epochs;
  double images_per_second = 0;
  double hidden = 0;  // Share of communication that other work hid, 0 to 1.
  std::size_t buckets = 0;
  Straggler straggler;
  std::vector<float> weights;
  std::uint64_t weights_hash = 0;  // The same where the bits are.
};

/// Trains on all ranks of `comm`; every rank gets the same outcome. `progress(epoch, epochs, last)`
/// is called on rank 0 after every epoch. An error if replicas differ at the end.
Result<Outcome> train(Communicator& comm, const Split& data, const TrainOptions& options,
                      const std::function<void(int, int, const Epoch&)>& progress);

/// kInvalidArgument if something is 0 that must not be.
Status check_options(const TrainOptions& options);

class Worker;
/// What training has come to, in `seconds` for so many images.
Outcome outcome_of(const Worker& worker, std::uint64_t weights_hash, double images, double seconds);

/// A picture of loss and accuracy by epoch (SVG).
std::string plot_of(const Outcome& outcome, int ranks);
/// The history as JSON.
std::string json_of(const Outcome& outcome, const TrainOptions& options, int ranks);

}  // namespace tutti::trainer
