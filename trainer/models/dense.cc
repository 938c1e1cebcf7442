#include <algorithm>
#include <cmath>

#include "trainer/models/layers.h"
#include "trainer/models/matrix.h"

namespace tutti::trainer {
namespace {

class Dense : public Layer {
 public:
  Dense(std::size_t inputs, std::size_t outputs, bool relu, std::size_t positions)
      : inputs_(inputs), outputs_(outputs), positions_(positions), relu_(relu) {}

  std::size_t inputs() const override { return inputs_ * positions_; }
  std::size_t outputs() const override { return outputs_ * positions_; }
  std::size_t parameters() const override { return (inputs_ + 1) * outputs_; }

  void initialise(std::mt19937_64& random, float* parameters) const override {
    const float gain = relu_ ? 2 : 1;
    std::normal_distribution<float> normal(0, std::sqrt(gain / static_cast<float>(inputs_)));
    std::generate_n(parameters, inputs_ * outputs_, [&] { return normal(random); });
    std::fill_n(parameters + inputs_ * outputs_, outputs_, 0.0F);
  }

  void forward(const Pass& pass, Tape& tape) const override {
    const std::size_t rows = pass.samples * positions_;
    const float* bias = pass.parameters + inputs_ * outputs_;
    tape.output.resize(rows * outputs_);
    for (std::size_t r = 0; r < rows; ++r)
      std::copy_n(bias, outputs_, tape.output.data() + r * outputs_);
    multiply(rows, outputs_, inputs_, {pass.input, inputs_}, {pass.parameters, outputs_},
             tape.output.data(), outputs_, 1);
    if (!relu_) return;
    for (float& value : tape.output) value = std::max(value, 0.0F);
  }

  void backward(const Pass& pass, Tape& tape, float* input_error, float* gradient) const override {
    const std::size_t rows = pass.samples * positions_;
    for (std::size_t i = 0; relu_ && i < tape.error.size(); ++i)
      tape.error[i] = tape.output[i] > 0 ? tape.error[i] : 0;
    const float* error = tape.error.data();
    multiply(inputs_, outputs_, rows, {pass.input, inputs_, true}, {error, outputs_}, gradient,
             outputs_);
    sum_rows(error, rows, outputs_, gradient + inputs_ * outputs_);
    if (input_error == nullptr) return;
    multiply(rows, inputs_, outputs_, {error, outputs_}, {pass.parameters, outputs_, true},
             input_error, inputs_);
  }

 private:
  std::size_t inputs_, outputs_, positions_;
  bool relu_;
};

}  // namespace

LayerPtr make_dense(std::size_t inputs, std::size_t outputs, bool relu, std::size_t positions) {
  return std::make_unique<Dense>(inputs, outputs, relu, positions);
}

}  // namespace tutti::trainer
