// File: trainer/model.h: a multilayer perceptron, 64-128-64-10, ReLU, softmax cross-entropy,
// float32.
//
// Parameters and gradients are plain arrays of `size()` floats, one layer after another, each its
// weights [inputs][outputs] and then its biases. The model holds none of them: where they lie
// (memory that peers can map) is the trainer's choice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "trainer/data.h"

namespace tutti::trainer {

struct Layer {
  std::size_t inputs = 0, outputs = 0, offset = 0;
  std::size_t size() const { return (inputs + 1) * outputs; }
};

class Model {
 public:
  Model();
  const std::vector<Layer>& layers() const { return layers_; }
  std::size_t size() const;

  /// He initialisation; the same for the same seed.
  void initialise(std::uint64_t seed, float* parameters) const;

  /// Sums the gradient of the loss over `samples` (indices into `data`) into `gradient`, which it
  /// overwrites, and returns the summed loss. `layer_done(l)` is called as soon as layer l's part
  /// of the gradient is complete: the last layer first, while the others are still to come.
  double backward(const float* parameters, const Digits& data, const std::size_t* samples,
                  std::size_t count, float* gradient,
                  const std::function<void(std::size_t)>& layer_done);

  /// How many of `data`'s images [first, last) are recognised.
  std::size_t count_right(const float* parameters, const Digits& data, std::size_t first,
                          std::size_t last);

 private:
  void forward(const float* parameters, const Digits& data, const std::size_t* samples,
               std::size_t count);

  std::vector<Layer> layers_;
  std::vector<std::vector<float>> activations_;  // [layer][sample][unit]; 0 is the input.
  std::vector<std::vector<float>> errors_;       // In each layer's output.
};

}  // namespace tutti::trainer
