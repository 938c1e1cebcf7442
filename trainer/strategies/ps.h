// File: trainer/strategies/ps.h: a parameter server: servers hold the weights, workers compute.
//
// The last ranks are servers; each has an even part of the flat vector. In a step a worker sends
// each server its part of the gradient and gets weights back, in two messages.
//
// Synchronous: a server waits for all workers, and updates once. Asynchronous: it updates for each
// message as it comes, so a gradient may be of weights that are older than those it changes.
// Bounded staleness keeps a worker that is `staleness` steps ahead of the slowest waiting for its
// weights.
#pragma once
#include <vector>

#include "trainer/strategies/strategy.h"

namespace tutti::trainer {

/// It has more than 20 functions: a strategy's, and what a worker and a server do.
class ParameterServer : public Strategy {
 public:
  enum class Mode { kSynchronous, kAsynchronous };
  ParameterServer(const Setup& setup, Mode mode);

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
  /// Changes a gradient that a worker computed from `old` weights, before it changes the newer
  /// ones. `size` values; server only.
  virtual void compensate(float* /*gradient*/, const float* /*weights*/, const float* /*old*/,
                          std::size_t /*size*/) const {}
  /// Whether it does, so that a server has to keep what each worker got.
  virtual bool compensates() const { return false; }

 private:
  struct Part {
    std::size_t begin, size;
  };
  std::size_t servers() const;
  std::size_t workers() const { return traffic().ranks() - servers(); }
  bool serves() const { return traffic().me() >= workers(); }
  Part part(std::size_t server) const;
  Status work();
  Status serve(const StepInfo& info);
  Status serve_all(const StepInfo& info);
  Status serve_next(const StepInfo& info, std::size_t message);
  Status answer(std::size_t worker);
  Status hand_out(float* whole);

  const Mode mode_;
  std::vector<float> rest_;            // On a server: a dummy for the trainer's walk.
  Floats weights_, gradient_;          // A worker's: whole. A server's: its part.
  Floats evaluated_;                   // All weights, during an evaluation.
  std::vector<Floats> inbox_, given_;  // By worker: gradients, and the weights that it has.
  std::vector<std::uint64_t> clocks_, versions_;  // By worker: its steps; what it last got.
  std::vector<char> waits_;                       // By worker: it is too far ahead.
  std::uint64_t version_ = 0, oldest_ = 0;
  Updater updater_;
};

}  // namespace tutti::trainer
