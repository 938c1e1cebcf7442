// File: trainer/strategies/async_ps.h: a parameter server that updates for each gradient as it
// comes, so a gradient may be of weights that are older than those it changes.
//
// Bounded staleness keeps a worker that is `staleness` steps ahead of the slowest waiting for its
// weights.
#pragma once
#include <vector>

#include "trainer/strategies/ps.h"

namespace tutti::trainer {

class AsyncServer : public ParameterServer {
 public:
  using ParameterServer::ParameterServer;

  Status begin(std::span<const float> weights) override;
  Status begin_evaluation() override;
  std::string note() const override;

 protected:
  /// Changes the gradient of a worker before it changes the weights. Server only.
  virtual void compensate(std::size_t /*worker*/) {}
  /// A worker is about to get the weights as they are. Server only.
  virtual void gives(std::size_t /*worker*/) {}

 private:
  Status serve(const StepInfo& info) override;
  Status serve_next(const StepInfo& info, std::size_t message);

  std::vector<std::uint64_t> clocks_, versions_;  // By worker: its steps; what it last got.
  std::vector<char> waits_;                       // By worker: it is too far ahead.
  std::uint64_t version_ = 0, oldest_ = 0;
};

}  // namespace tutti::trainer
