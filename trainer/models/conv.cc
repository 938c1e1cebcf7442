#include <algorithm>
#include <cmath>

#include "trainer/models/layers.h"
#include "trainer/models/matrix.h"

namespace tutti::trainer {
namespace {

constexpr std::size_t kFilterSide = 3;

/// A convolution as one product of matrices: the pixels under the filter at each place become a row
/// (im2col).
class Conv : public Layer {
 public:
  Conv(std::size_t side, std::size_t channels, std::size_t filters, std::size_t stride)
      : side_(side),
        channels_(channels),
        filters_(filters),
        stride_(stride),
        out_side_((side + stride - 1) / stride) {}

  std::size_t inputs() const override { return side_ * side_ * channels_; }
  std::size_t outputs() const override { return out_side_ * out_side_ * filters_; }
  std::size_t parameters() const override { return (row() + 1) * filters_; }

  void initialise(std::mt19937_64& random, float* parameters) const override {
    std::normal_distribution<float> normal(0, std::sqrt(2.0F / static_cast<float>(row())));
    std::generate_n(parameters, row() * filters_, [&] { return normal(random); });
    std::fill_n(parameters + row() * filters_, filters_, 0.0F);
  }

  void forward(const Pass& pass, Tape& tape) const override {
    const std::size_t rows = pass.samples * out_side_ * out_side_;
    tape.saved.assign(rows * row(), 0.0F);
    each_pixel(pass.samples, [&](std::size_t from, std::size_t to) {
      std::copy_n(pass.input + from, channels_, tape.saved.data() + to);
    });
    const float* bias = pass.parameters + row() * filters_;
    tape.output.resize(rows * filters_);
    for (std::size_t r = 0; r < rows; ++r)
      std::copy_n(bias, filters_, tape.output.data() + r * filters_);
    multiply(rows, filters_, row(), {tape.saved.data(), row()}, {pass.parameters, filters_},
             tape.output.data(), filters_, 1);
  }

  void backward(const Pass& pass, Tape& tape, float* input_error, float* gradient) const override {
    const std::size_t rows = pass.samples * out_side_ * out_side_;
    const float* error = tape.error.data();
    multiply(row(), filters_, rows, {tape.saved.data(), row(), true}, {error, filters_}, gradient,
             filters_);
    sum_rows(error, rows, filters_, gradient + row() * filters_);
    if (input_error == nullptr) return;
    multiply(rows, row(), filters_, {error, filters_}, {pass.parameters, filters_, true},
             tape.saved.data(), row());
    std::fill_n(input_error, pass.samples * inputs(), 0.0F);
    each_pixel(pass.samples, [&](std::size_t to, std::size_t from) {
      for (std::size_t c = 0; c < channels_; ++c) input_error[to + c] += tape.saved[from + c];
    });
  }

 private:
  std::size_t row() const { return kFilterSide * kFilterSide * channels_; }

  /// visit(in, column): the offsets of a pixel in the image, and of its place in a row of columns.
  template <class Visit>
  void each_pixel(std::size_t samples, Visit visit) const {
    for (std::size_t place = 0; place < samples * out_side_ * out_side_; ++place) {
      const std::size_t x = place % out_side_, y = place / out_side_ % out_side_;
      const std::size_t sample = place / (out_side_ * out_side_);
      for (std::size_t f = 0; f < kFilterSide * kFilterSide; ++f) {
        // One further right and down, so that nothing is below 0.
        const std::size_t px = x * stride_ + f % kFilterSide, py = y * stride_ + f / kFilterSide;
        if (px < 1 || py < 1 || px > side_ || py > side_) continue;
        visit(sample * inputs() + ((py - 1) * side_ + px - 1) * channels_,
              place * row() + f * channels_);
      }
    }
  }

  std::size_t side_, channels_, filters_, stride_, out_side_;
};

}  // namespace

LayerPtr make_conv(std::size_t side, std::size_t channels, std::size_t filters,
                   std::size_t stride) {
  return std::make_unique<Conv>(side, channels, filters, stride);
}

}  // namespace tutti::trainer
