// File: trainer/strategies/replica.h: strategies whose ranks each have all parameters.
//
// Parameters and gradients are one vector each, in the network's own order, and the optimiser
// updates all of it. What differs is what happens to the gradients, or to the weights, between.
#pragma once
#include <algorithm>
#include <optional>

#include "trainer/strategies/strategy.h"

namespace tutti::trainer {

class Replica : public Strategy {
 public:
  using Strategy::Strategy;

  Status begin(std::span<const float> weights) override {
    TUTTI_TRY(parameters_, make(Holds::kParameters, weights.size()));
    TUTTI_TRY(gradients_, make(Holds::kGradients, weights.size()));
    std::copy(weights.begin(), weights.end(), parameters_.data());
    std::vector<Run> runs;
    for (std::size_t u = 0; u < units().size(); ++u) {
      const Unit& unit = units()[u];
      runs.push_back(
          {u, unit.offset, unit.size, this->weights() + unit.offset, gradients() + unit.offset});
    }
    TUTTI_TRY(updater_,
              Updater::make(options().optimiser, setup_.ledger, std::move(runs), units().size()));
    return ok();
  }
  Result<const float*> parameters(std::size_t unit) override {
    return weights() + units()[unit].offset;
  }
  Result<Target> gradient(std::size_t unit) override {
    return Target{gradients() + units()[unit].offset, !first_batch_};
  }
  std::vector<Piece> pieces() override { return updater_.pieces(Held::kEverywhere); }

 protected:
  float* weights() { return parameters_.data(); }
  float* gradients() { return gradients_.data(); }
  std::size_t size() const { return parameters_.size(); }
  /// The weights and the optimiser's values, where ranks differ.
  std::vector<Piece> pieces_by_rank() const { return updater_.pieces(Held::kByRank); }
  /// Updates the weights by the mean of gradients that are summed over `labels`.
  Status update(std::uint64_t number, double rate, std::size_t labels,
                const std::vector<char>* used = nullptr) {
    const double scale = 1.0 / static_cast<double>(std::max<std::size_t>(1, labels));
    return updater_.update({number, rate, scale}, {}, used);
  }

 private:
  Floats parameters_, gradients_;
  Updater updater_;
};

}  // namespace tutti::trainer
