#include "trainer/model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

namespace tutti::trainer {
namespace {

constexpr std::array<std::size_t, 4> kWidths{kPixels, 128, 64, kClasses};

/// output[o] = bias[o] + sum over i of input[i] * weight[i][o]
void apply(const Layer& layer, const float* parameters, const float* input, float* output) {
  const float* weights = parameters + layer.offset;
  std::copy_n(weights + layer.inputs * layer.outputs, layer.outputs, output);
  for (std::size_t i = 0; i < layer.inputs; ++i) {
    const float x = input[i];
    if (x == 0) continue;  // Blank pixels, and units that ReLU has switched off.
    const float* row = weights + i * layer.outputs;
    for (std::size_t o = 0; o < layer.outputs; ++o) output[o] += x * row[o];
  }
}

/// Adds one sample's gradient of a layer.
void add_gradient(const Layer& layer, const float* input, const float* error, float* gradient) {
  float* weights = gradient + layer.offset;
  for (std::size_t i = 0; i < layer.inputs; ++i) {
    const float x = input[i];
    if (x == 0) continue;
    float* row = weights + i * layer.outputs;
    for (std::size_t o = 0; o < layer.outputs; ++o) row[o] += x * error[o];
  }
  float* bias = weights + layer.inputs * layer.outputs;
  for (std::size_t o = 0; o < layer.outputs; ++o) bias[o] += error[o];
}

/// Turns scores into the gradient of the cross-entropy and returns the loss.
double softmax_error(float* scores, std::size_t label) {
  const float highest = *std::max_element(scores, scores + kClasses);
  double sum = 0;
  for (std::size_t c = 0; c < kClasses; ++c)
    sum += std::exp(static_cast<double>(scores[c] - highest));
  const double loss = std::log(sum) - static_cast<double>(scores[label] - highest);
  for (std::size_t c = 0; c < kClasses; ++c) {
    const double probability = std::exp(static_cast<double>(scores[c] - highest)) / sum;
    scores[c] = static_cast<float>(probability - (c == label ? 1.0 : 0.0));
  }
  return loss;
}

}  // namespace

Model::Model() {
  std::size_t offset = 0;
  for (std::size_t l = 0; l + 1 < kWidths.size(); ++l) {
    layers_.push_back({kWidths[l], kWidths[l + 1], offset});
    offset += layers_.back().size();
  }
  activations_.resize(kWidths.size());
  errors_.resize(layers_.size());
}

std::size_t Model::size() const { return layers_.back().offset + layers_.back().size(); }

void Model::initialise(std::uint64_t seed, float* parameters) const {
  std::mt19937_64 random(seed);
  for (const Layer& layer : layers_) {
    std::normal_distribution<float> normal(0, std::sqrt(2.0F / static_cast<float>(layer.inputs)));
    float* weights = parameters + layer.offset;
    for (std::size_t i = 0; i < layer.inputs * layer.outputs; ++i) weights[i] = normal(random);
    std::fill_n(weights + layer.inputs * layer.outputs, layer.outputs, 0.0F);
  }
}

void Model::forward(const float* parameters, const Digits& data, const std::size_t* samples,
                    std::size_t count) {
  activations_[0].resize(count * kPixels);
  for (std::size_t s = 0; s < count; ++s) {
    std::copy_n(data.image(samples[s]), kPixels, activations_[0].data() + s * kPixels);
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    activations_[l + 1].resize(count * layer.outputs);
    for (std::size_t s = 0; s < count; ++s) {
      float* output = activations_[l + 1].data() + s * layer.outputs;
      apply(layer, parameters, activations_[l].data() + s * layer.inputs, output);
      if (l + 1 == layers_.size()) continue;
      for (std::size_t o = 0; o < layer.outputs; ++o) output[o] = std::max(output[o], 0.0F);
    }
  }
}

double Model::backward(const float* parameters, const Digits& data, const std::size_t* samples,
                       std::size_t count, float* gradient,
                       const std::function<void(std::size_t)>& layer_done) {
  forward(parameters, data, samples, count);
  std::fill_n(gradient, size(), 0.0F);
  double loss = 0;
  errors_.back() = activations_.back();
  for (std::size_t s = 0; s < count; ++s) {
    loss += softmax_error(errors_.back().data() + s * kClasses, data.labels[samples[s]]);
  }
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    for (std::size_t s = 0; s < count; ++s) {
      add_gradient(layer, activations_[l].data() + s * layer.inputs,
                   errors_[l].data() + s * layer.outputs, gradient);
    }
    layer_done(l);
    if (l == 0) break;
    errors_[l - 1].resize(count * layer.inputs);
    for (std::size_t s = 0; s < count; ++s) {
      const float* error = errors_[l].data() + s * layer.outputs;
      for (std::size_t i = 0; i < layer.inputs; ++i) {
        const float* row = parameters + layer.offset + i * layer.outputs;
        const bool on = activations_[l][s * layer.inputs + i] > 0;  // ReLU's slope.
        errors_[l - 1][s * layer.inputs + i] =
            on ? std::inner_product(row, row + layer.outputs, error, 0.0F) : 0.0F;
      }
    }
  }
  return loss;
}

std::size_t Model::count_right(const float* parameters, const Digits& data, std::size_t first,
                               std::size_t last) {
  std::vector<std::size_t> samples(last - first);
  std::iota(samples.begin(), samples.end(), first);
  forward(parameters, data, samples.data(), samples.size());
  std::size_t right = 0;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const float* scores = activations_.back().data() + s * kClasses;
    const auto guess =
        static_cast<std::size_t>(std::max_element(scores, scores + kClasses) - scores);
    right += guess == data.labels[samples[s]] ? 1 : 0;
  }
  return right;
}

}  // namespace tutti::trainer
