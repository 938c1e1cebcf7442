#include <algorithm>
#include <cmath>

#include "trainer/models/layers.h"
#include "trainer/models/matrix.h"

namespace tutti::trainer {
namespace {

class Embedding : public Layer {
 public:
  Embedding(std::size_t symbols, std::size_t positions, std::size_t width)
      : symbols_(symbols), positions_(positions), width_(width) {}

  std::size_t inputs() const override { return positions_; }
  std::size_t outputs() const override { return positions_ * width_; }
  std::size_t parameters() const override { return (symbols_ + positions_) * width_; }

  void initialise(std::mt19937_64& random, float* parameters) const override {
    std::normal_distribution<float> normal(0, 0.3F);
    std::generate_n(parameters, this->parameters(), [&] { return normal(random); });
  }

  void forward(const Pass& pass, Tape& tape) const override {
    const std::size_t rows = pass.samples * positions_;
    tape.output.resize(rows * width_);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* symbol = pass.parameters + symbol_at(pass, r) * width_;
      const float* place = pass.parameters + (symbols_ + r % positions_) * width_;
      for (std::size_t c = 0; c < width_; ++c) tape.output[r * width_ + c] = symbol[c] + place[c];
    }
  }

  void backward(const Pass& pass, Tape& tape, float* /*input_error*/,
                float* gradient) const override {
    std::fill_n(gradient, parameters(), 0.0F);
    for (std::size_t r = 0; r < pass.samples * positions_; ++r) {
      float* symbol = gradient + symbol_at(pass, r) * width_;
      float* place = gradient + (symbols_ + r % positions_) * width_;
      for (std::size_t c = 0; c < width_; ++c) {
        symbol[c] += tape.error[r * width_ + c];
        place[c] += tape.error[r * width_ + c];
      }
    }
  }

 private:
  static std::size_t symbol_at(const Pass& pass, std::size_t row) {
    return static_cast<std::size_t>(pass.input[row]);
  }
  std::size_t symbols_, positions_, width_;
};

/// saved: the attention of each sample, head and position to the positions up to it.
class Attention : public Layer {
 public:
  Attention(std::size_t positions, std::size_t width, std::size_t heads)
      : positions_(positions), width_(width), heads_(heads), depth_(width / heads) {}

  std::size_t inputs() const override { return positions_ * 3 * width_; }
  std::size_t outputs() const override { return positions_ * width_; }

  void forward(const Pass& pass, Tape& tape) const override {
    tape.output.resize(pass.samples * outputs());
    tape.saved.resize(pass.samples * heads_ * square());
    for (std::size_t s = 0; s < pass.samples * heads_; ++s) {
      const float* query = query_of(pass.input, s);
      float* weights = tape.saved.data() + s * square();
      multiply(positions_, positions_, depth_, {query, 3 * width_},
               {query + width_, 3 * width_, true}, weights, positions_, 0, scale());
      for (std::size_t p = 0; p < positions_; ++p) softmax(weights + p * positions_, p + 1);
      multiply(positions_, depth_, positions_, {weights, positions_},
               {query + 2 * width_, 3 * width_}, output_of(tape.output.data(), s), width_);
    }
  }

  void backward(const Pass& pass, Tape& tape, float* input_error,
                float* /*gradient*/) const override {
    std::vector<float> slopes(square());
    for (std::size_t s = 0; s < pass.samples * heads_; ++s) {
      const float* query = query_of(pass.input, s);
      const float* weights = tape.saved.data() + s * square();
      const float* error = output_of(tape.error.data(), s);
      float* into = input_error + (query - pass.input);
      multiply(positions_, depth_, positions_, {weights, positions_, true}, {error, width_},
               into + 2 * width_, 3 * width_);
      multiply(positions_, positions_, depth_, {error, width_},
               {query + 2 * width_, 3 * width_, true}, slopes.data(), positions_);
      for (std::size_t p = 0; p < positions_; ++p)
        softmax_slopes(weights + p * positions_, slopes.data() + p * positions_);
      multiply(positions_, depth_, positions_, {slopes.data(), positions_},
               {query + width_, 3 * width_}, into, 3 * width_, 0, scale());
      multiply(positions_, depth_, positions_, {slopes.data(), positions_, true},
               {query, 3 * width_}, into + width_, 3 * width_, 0, scale());
    }
  }

 private:
  std::size_t square() const { return positions_ * positions_; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(depth_)); }
  /// The query of sample s / heads_ and head s % heads_.
  const float* query_of(const float* input, std::size_t s) const {
    return input + s / heads_ * inputs() + s % heads_ * depth_;
  }
  template <class T>
  T* output_of(T* output, std::size_t s) const {
    return output + s / heads_ * outputs() + s % heads_ * depth_;
  }
  /// Over the first `seen` scores; a position does not see those behind it.
  void softmax(float* scores, std::size_t seen) const {
    const float highest = *std::max_element(scores, scores + seen);
    float sum = 0;
    for (std::size_t i = 0; i < seen; ++i) sum += scores[i] = std::exp(scores[i] - highest);
    for (std::size_t i = 0; i < seen; ++i) scores[i] /= sum;
    std::fill(scores + seen, scores + positions_, 0.0F);
  }
  /// From the slopes in the weights to those in the scores.
  void softmax_slopes(const float* weights, float* slopes) const {
    float sum = 0;
    for (std::size_t i = 0; i < positions_; ++i) sum += weights[i] * slopes[i];
    for (std::size_t i = 0; i < positions_; ++i) slopes[i] = weights[i] * (slopes[i] - sum);
  }

  std::size_t positions_, width_, heads_, depth_;
};

}  // namespace

LayerPtr make_embedding(std::size_t symbols, std::size_t positions, std::size_t width) {
  return std::make_unique<Embedding>(symbols, positions, width);
}

LayerPtr make_attention(std::size_t positions, std::size_t width, std::size_t heads) {
  return std::make_unique<Attention>(positions, width, heads);
}

}  // namespace tutti::trainer
