// File: trainer/models/layer.h: a layer of a network: forward, backward, and its parameters.
//
// A layer holds no values. Parameters and their gradients are spans of flat float32 vectors that
// lie where the strategy wants them, and what a pass has to remember is on a tape. So the same
// layer can work on several slices of a batch, and its parameters may be there only while it works.
// Values are [sample][...], one sample after another.
//
// To add one: a class here with its file, a make_ function in layers.h, and a model in network.cc
// that has it; the test of gradients then covers it.
#pragma once
#include <cstddef>
#include <random>
#include <vector>

namespace tutti::trainer {

/// What a layer remembers of one slice from forward to backward.
struct Tape {
  std::vector<float> output;  // [sample][outputs()]
  std::vector<float> error;   // The loss's slope in `output`; the next layer's backward writes it.
  std::vector<float> saved;   // What else the layer needs.
  std::vector<Tape> parts;    // The tapes of inner layers.
};

/// What a layer gets for one slice.
struct Pass {
  const float* parameters = nullptr;
  const float* input = nullptr;  // [sample][inputs]
  std::size_t samples = 0;
  bool training = true;
  float* buffers = nullptr;              // Layer::buffers() values that are no parameters.
  const double* forward_sums = nullptr;  // Layer::sums() values over the whole batch.
  const double* backward_sums = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::size_t inputs() const = 0;   // Values of a sample.
  virtual std::size_t outputs() const = 0;  // The same.
  virtual std::size_t parameters() const { return 0; }
  virtual std::size_t buffers() const { return 0; }
  virtual void initialise(std::mt19937_64& /*random*/, float* /*parameters*/) const {}
  virtual void initialise_buffers(float* /*buffers*/) const {}

  /// Sets tape.output.
  virtual void forward(const Pass& pass, Tape& tape) const = 0;
  /// From tape.error, which it may change: sets the slope in the input, unless `input_error` is
  /// null, and the slopes in the parameters, summed over the samples.
  virtual void backward(const Pass& pass, Tape& tape, float* input_error,
                        float* gradient) const = 0;

  /// Values that a layer needs summed over all slices of a batch before forward, and as many before
  /// backward: batch normalisation needs means. The functions add one slice's.
  virtual std::size_t sums() const { return 0; }
  virtual void add_forward_sums(const Pass& /*pass*/, double* /*sums*/) const {}
  virtual void add_backward_sums(const Pass& /*pass*/, const Tape& /*tape*/,
                                 double* /*sums*/) const {}
  /// Called once for each batch in training, with the forward sums.
  virtual void update_buffers(const double* /*sums*/, float* /*buffers*/) const {}
  /// Whether leaving it out, so that its output is its input, leaves a network that makes sense.
  virtual bool may_be_skipped() const { return false; }
};

}  // namespace tutti::trainer
