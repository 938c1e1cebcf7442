// File: trainer/passes.h: a batch through a network and back, unit by unit.
//
// A batch is cut into slices whose number does not depend on that of the ranks. Each slice is
// computed on its own, so its gradient has the same bits on whichever rank. A rank adds up its
// slices' gradients as a balanced binary tree, and a reduction over ranks goes on with the tree:
// that is the library's canonical order. So with a power of two of slices, 1, 2, 4, ... ranks get
// the same gradient to the last bit; with other counts slices group differently, and it agrees to
// rounding.
#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "trainer/data.h"
#include "trainer/models/network.h"
#include "trainer/strategies/strategy.h"
#include "tutti/spans.h"

namespace tutti::trainer {

/// Samples that are computed together: indices into the data.
struct Slice {
  const std::size_t* samples = nullptr;
  std::size_t count = 0;
};

/// One rank's passes. Keeps the values of the last forward pass for the pass back.
class Passes {
 public:
  /// Adds up values of all ranks.
  using Sum = std::function<Status(std::span<double>)>;

  Passes(const Network& network, Ledger& ledger);
  /// Where the passes from now on leave their spans.
  void trace_to(Spans spans) { spans_ = std::move(spans); }

  /// Sums the gradient of the loss over the slices; the strategy is called as strategy.h says.
  /// Returns the summed loss. `sum` is for batch normalisation over all ranks; without it a rank
  /// normalises its own samples. `skipped` units are left out (stochastic depth; may be empty).
  Result<double> train(Strategy& strategy, const Samples& data, std::span<const Slice> slices,
                       const Sum& sum, const std::vector<char>& skipped);
  /// How many labels are guessed right.
  Result<std::size_t> count_right(Strategy& strategy, const Samples& data,
                                  std::span<const Slice> slices);

  /// Values that are no parameters: running means.
  std::vector<float>& buffers() { return buffers_; }
  const std::vector<float>& buffers() const { return buffers_; }
  /// Seconds in layers.
  double compute_seconds() const { return compute_s_; }

 private:
  struct Place;
  struct Tree;
  Status forward(Strategy& strategy, const Samples& data, std::span<const Slice> slices,
                 bool training, const Sum& sum, const std::vector<char>& skipped);
  Status backward(Strategy& strategy, std::span<const Slice> slices, const Sum& sum,
                  const std::vector<char>& skipped);
  Status backward_unit(Strategy& strategy, std::size_t unit, std::span<const Slice> slices,
                       const Sum& sum);
  Status sum_up(std::size_t unit, const float* parameters, std::span<const Slice> slices,
                bool is_forward, const Sum& sum);
  Status add_gradients(const Tree& tree, std::size_t first, std::size_t count, float* into,
                       std::size_t depth);
  Pass pass_of(std::size_t unit, std::size_t slice, std::size_t samples, const float* parameters);

  const Network& network_;
  Ledger& ledger_;
  std::vector<float> buffers_;
  bool training_ = true;
  std::vector<std::vector<float>> inputs_;                         // [slice]: the samples.
  std::vector<std::vector<Tape>> tapes_;                           // [unit][slice]
  std::vector<std::vector<double>> forward_sums_, backward_sums_;  // [unit]
  std::vector<Floats> partial_;  // Gradients of a unit, one for each depth of the tree.
  double compute_s_ = 0;
  Spans spans_;
};

}  // namespace tutti::trainer
