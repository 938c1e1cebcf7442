// File: trainer/strategies/ps.h: a parameter server: servers hold the weights, workers compute.
//
// The last ranks are servers; each has an even part of the flat vector. In a step a worker sends
// each server its part of the gradient and gets weights back, in two messages. A server waits for
// all workers, and updates once; one that does otherwise is derived from this (async_ps.h).
#pragma once
#include <vector>

#include "trainer/strategies/strategy.h"

namespace tutti::trainer {

/// kInvalidArgument if no rank would be left as a worker.
Status check_servers(int servers, std::size_t ranks);

class ParameterServer : public Strategy {
 public:
  using Strategy::Strategy;

  Status begin(std::span<const float> weights) override;
  Share share() const override;
  Result<const float*> parameters(std::size_t unit) override;
  Result<Target> gradient(std::size_t unit) override;
  Status ready(std::size_t /*unit*/) override { return ok(); }
  Status step(const StepInfo& info) override;
  Status begin_evaluation() override;
  Status end_evaluation() override;
  /// What a server has: a worker has nothing that it does not get anew. So after a checkpoint the
  /// first gradients are of the latest weights, where without it they might be of older ones.
  std::vector<Piece> pieces() override;
  Status restored() override;
  std::string note() const override;

 protected:
  std::size_t servers() const;
  std::size_t workers() const { return traffic().ranks() - servers(); }
  bool serves() const { return traffic().me() >= workers(); }
  /// A server's part of a step: takes gradients, changes weights, sends them.
  virtual Status serve(const StepInfo& info);
  Status send_weights(std::size_t worker) {
    return traffic().send(weights_.data(), weights_.size(), worker);
  }

  Floats weights_, gradient_;  // A worker's: whole. A server's: its part.
  Updater updater_;            // A server's.

 private:
  struct Part {
    std::size_t begin, size;
  };
  Part part(std::size_t server) const;
  Status work();
  Status hand_out(float* whole);

  std::vector<float> rest_;    // On a server: a dummy for the trainer's walk.
  Floats evaluated_;           // All weights, during an evaluation.
  std::vector<Floats> inbox_;  // On a server, by worker: gradients.
};

}  // namespace tutti::trainer
