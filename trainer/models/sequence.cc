#include <algorithm>
#include <numeric>

#include "trainer/models/layers.h"

namespace tutti::trainer {
namespace {

class Sequence : public Layer {
 public:
  explicit Sequence(std::vector<LayerPtr> layers) : layers_(std::move(layers)) {}

  std::size_t inputs() const override { return layers_.front()->inputs(); }
  std::size_t outputs() const override { return layers_.back()->outputs(); }
  std::size_t parameters() const override {
    return std::accumulate(
        layers_.begin(), layers_.end(), std::size_t{0},
        [](std::size_t sum, const LayerPtr& layer) { return sum + layer->parameters(); });
  }

  bool may_be_skipped() const override {
    return std::all_of(layers_.begin(), layers_.end(),
                       [](const LayerPtr& layer) { return layer->may_be_skipped(); });
  }

  void initialise(std::mt19937_64& random, float* parameters) const override {
    for (const LayerPtr& layer : layers_) {
      layer->initialise(random, parameters);
      parameters += layer->parameters();
    }
  }

  void forward(const Pass& pass, Tape& tape) const override {
    tape.parts.resize(layers_.size());
    Pass inner = pass;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      layers_[l]->forward(inner, tape.parts[l]);
      inner.input = tape.parts[l].output.data();
      inner.parameters += layers_[l]->parameters();
    }
    tape.output = tape.parts.back().output;
  }

  void backward(const Pass& pass, Tape& tape, float* input_error, float* gradient) const override {
    tape.parts.back().error = tape.error;
    std::size_t offset = parameters();
    for (std::size_t l = layers_.size(); l-- > 0;) {
      offset -= layers_[l]->parameters();
      Pass inner = pass;
      inner.parameters += offset;
      float* error = input_error;
      if (l > 0) {
        inner.input = tape.parts[l - 1].output.data();
        tape.parts[l - 1].error.resize(tape.parts[l - 1].output.size());
        error = tape.parts[l - 1].error.data();
      }
      layers_[l]->backward(inner, tape.parts[l], error, gradient + offset);
    }
  }

 private:
  std::vector<LayerPtr> layers_;
};

class Residual : public Layer {
 public:
  explicit Residual(LayerPtr inner) : inner_(std::move(inner)) {}

  std::size_t inputs() const override { return inner_->inputs(); }
  std::size_t outputs() const override { return inner_->outputs(); }
  std::size_t parameters() const override { return inner_->parameters(); }
  bool may_be_skipped() const override { return true; }
  void initialise(std::mt19937_64& random, float* parameters) const override {
    inner_->initialise(random, parameters);
  }

  void forward(const Pass& pass, Tape& tape) const override {
    tape.parts.resize(1);
    inner_->forward(pass, tape.parts[0]);
    tape.output = tape.parts[0].output;
    for (std::size_t i = 0; i < tape.output.size(); ++i) tape.output[i] += pass.input[i];
  }

  void backward(const Pass& pass, Tape& tape, float* input_error, float* gradient) const override {
    tape.parts[0].error = tape.error;
    inner_->backward(pass, tape.parts[0], input_error, gradient);
    for (std::size_t i = 0; input_error != nullptr && i < tape.error.size(); ++i)
      input_error[i] += tape.error[i];
  }

 private:
  LayerPtr inner_;
};

}  // namespace

LayerPtr make_sequence(std::vector<LayerPtr> layers) {
  return std::make_unique<Sequence>(std::move(layers));
}

LayerPtr make_residual(LayerPtr inner) { return std::make_unique<Residual>(std::move(inner)); }

}  // namespace tutti::trainer
