#include <algorithm>
#include <cmath>

#include "trainer/models/layers.h"

namespace tutti::trainer {
namespace {

constexpr float kEpsilon = 1e-5F;

/// Parameters: scales, shifts. saved: the normalised values, then one factor for each row.
class LayerNorm : public Layer {
 public:
  LayerNorm(std::size_t positions, std::size_t channels)
      : positions_(positions), channels_(channels) {}

  std::size_t inputs() const override { return positions_ * channels_; }
  std::size_t outputs() const override { return positions_ * channels_; }
  std::size_t parameters() const override { return 2 * channels_; }

  void initialise(std::mt19937_64& /*random*/, float* parameters) const override {
    std::fill_n(parameters, channels_, 1.0F);
    std::fill_n(parameters + channels_, channels_, 0.0F);
  }

  void forward(const Pass& pass, Tape& tape) const override {
    const std::size_t rows = pass.samples * positions_;
    tape.output.resize(rows * channels_);
    tape.saved.resize(rows * channels_ + rows);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* x = pass.input + r * channels_;
      float mean = 0, variance = 0;
      for (std::size_t c = 0; c < channels_; ++c) mean += x[c];
      mean /= static_cast<float>(channels_);
      for (std::size_t c = 0; c < channels_; ++c) variance += (x[c] - mean) * (x[c] - mean);
      const float factor = 1 / std::sqrt(variance / static_cast<float>(channels_) + kEpsilon);
      tape.saved[rows * channels_ + r] = factor;
      for (std::size_t c = 0; c < channels_; ++c) {
        const std::size_t i = r * channels_ + c;
        tape.saved[i] = (x[c] - mean) * factor;
        tape.output[i] = tape.saved[i] * pass.parameters[c] + pass.parameters[channels_ + c];
      }
    }
  }

  void backward(const Pass& pass, Tape& tape, float* input_error, float* gradient) const override {
    const std::size_t rows = pass.samples * positions_;
    std::fill_n(gradient, 2 * channels_, 0.0F);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* error = tape.error.data() + r * channels_;
      const float* normal = tape.saved.data() + r * channels_;
      float average = 0, slope = 0;  // The error in the normalised values.
      for (std::size_t c = 0; c < channels_; ++c) {
        gradient[c] += error[c] * normal[c];
        gradient[channels_ + c] += error[c];
        average += error[c] * pass.parameters[c] / static_cast<float>(channels_);
        slope += error[c] * pass.parameters[c] * normal[c] / static_cast<float>(channels_);
      }
      if (input_error == nullptr) continue;
      for (std::size_t c = 0; c < channels_; ++c) {
        input_error[r * channels_ + c] =
            tape.saved[rows * channels_ + r] *
            (error[c] * pass.parameters[c] - average - normal[c] * slope);
      }
    }
  }

 private:
  std::size_t positions_, channels_;
};

}  // namespace

LayerPtr make_layer_norm(std::size_t positions, std::size_t channels) {
  return std::make_unique<LayerNorm>(positions, channels);
}

}  // namespace tutti::trainer
