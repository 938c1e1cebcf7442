#include <algorithm>
#include <cmath>

#include "trainer/models/layers.h"

namespace tutti::trainer {
namespace {

constexpr double kEpsilon = 1e-5;
constexpr float kMomentum = 0.1F;  // For running means and variances.

/// Forward sums: [channel] of x, [channel] of x * x, and the number of values of a channel.
/// Backward sums: [channel] of the error, [channel] of error * normalised, and one that is unused.
/// Parameters: scales, shifts. Buffers: running means, running variances.
class BatchNorm : public Layer {
 public:
  BatchNorm(std::size_t positions, std::size_t channels)
      : positions_(positions), channels_(channels) {}

  std::size_t inputs() const override { return positions_ * channels_; }
  std::size_t outputs() const override { return positions_ * channels_; }
  std::size_t parameters() const override { return 2 * channels_; }
  std::size_t buffers() const override { return 2 * channels_; }
  std::size_t sums() const override { return 2 * channels_ + 1; }

  void initialise(std::mt19937_64& /*random*/, float* parameters) const override {
    std::fill_n(parameters, channels_, 1.0F);
    std::fill_n(parameters + channels_, channels_, 0.0F);
  }
  void initialise_buffers(float* buffers) const override {
    std::fill_n(buffers, channels_, 0.0F);
    std::fill_n(buffers + channels_, channels_, 1.0F);
  }

  void add_forward_sums(const Pass& pass, double* sums) const override {
    const std::size_t rows = pass.samples * positions_;
    for (std::size_t i = 0; i < rows * channels_; ++i) {
      const double x = pass.input[i];
      sums[i % channels_] += x;
      sums[channels_ + i % channels_] += x * x;
    }
    sums[2 * channels_] += static_cast<double>(rows);
  }

  void update_buffers(const double* sums, float* buffers) const override {
    if (sums[2 * channels_] == 0) return;
    for (std::size_t c = 0; c < channels_; ++c) {
      const Moments moments = moments_of(sums, c);
      buffers[c] += kMomentum * (static_cast<float>(moments.mean) - buffers[c]);
      float& variance = buffers[channels_ + c];
      variance += kMomentum * (static_cast<float>(moments.variance) - variance);
    }
  }

  void forward(const Pass& pass, Tape& tape) const override {
    const std::size_t count = pass.samples * positions_ * channels_;
    std::vector<float> mean(channels_), factor(channels_);
    for (std::size_t c = 0; c < channels_; ++c) {
      const Moments moments = pass.training ? moments_of(pass.forward_sums, c)
                                            : Moments{pass.buffers[c], pass.buffers[channels_ + c]};
      mean[c] = static_cast<float>(moments.mean);
      factor[c] = static_cast<float>(1 / std::sqrt(moments.variance + kEpsilon));
    }
    tape.output.resize(count);
    tape.saved.resize(count);  // The normalised values.
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t c = i % channels_;
      tape.saved[i] = (pass.input[i] - mean[c]) * factor[c];
      tape.output[i] =
          std::max(0.0F, tape.saved[i] * pass.parameters[c] + pass.parameters[channels_ + c]);
    }
  }

  void add_backward_sums(const Pass& pass, const Tape& tape, double* sums) const override {
    for (std::size_t i = 0; i < pass.samples * positions_ * channels_; ++i) {
      if (tape.output[i] <= 0) continue;
      sums[i % channels_] += tape.error[i];
      sums[channels_ + i % channels_] += static_cast<double>(tape.error[i]) * tape.saved[i];
    }
  }

  void backward(const Pass& pass, Tape& tape, float* input_error, float* gradient) const override {
    std::fill_n(gradient, 2 * channels_, 0.0F);
    const double count = pass.forward_sums[2 * channels_];
    for (std::size_t i = 0; i < pass.samples * positions_ * channels_; ++i) {
      const std::size_t c = i % channels_;
      const float error = tape.output[i] > 0 ? tape.error[i] : 0;
      gradient[c] += error * tape.saved[i];
      gradient[channels_ + c] += error;
      const double factor =
          pass.parameters[c] / std::sqrt(moments_of(pass.forward_sums, c).variance + kEpsilon);
      const double average = pass.backward_sums[c] / count;
      const double slope = pass.backward_sums[channels_ + c] / count;
      input_error[i] = static_cast<float>(factor * (error - average - tape.saved[i] * slope));
    }
  }

 private:
  struct Moments {
    double mean = 0, variance = 1;
  };
  Moments moments_of(const double* sums, std::size_t channel) const {
    const double count = sums[2 * channels_], mean = sums[channel] / count;
    return {mean, std::max(0.0, sums[channels_ + channel] / count - mean * mean)};
  }

  std::size_t positions_, channels_;
};

}  // namespace

LayerPtr make_batch_norm(std::size_t positions, std::size_t channels) {
  return std::make_unique<BatchNorm>(positions, channels);
}

}  // namespace tutti::trainer
