// Adam (Kingma, Ba, 2015) with decoupled weight decay (AdamW), and LAMB, which scales its steps by
// unit (You et al.: Large Batch Optimization for Deep Learning, 2020).
//
//   m = b1 m + (1 - b1) g       v = b2 v + (1 - b2) g^2
//   r = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + epsilon) + lambda w
//   Adam  w = w - eta r                  LAMB  w = w - eta |w| / |r| r
#include <cmath>

#include "trainer/optimisers/optimisers.h"

namespace tutti::trainer {
namespace {

class Adam : public Optimiser {
 public:
  using Optimiser::Optimiser;
  std::size_t states() const override { return 2; }
  void update(const Place& place, const Step& step, double trust) override {
    if (!by_unit()) advance(place, step);
    const auto factor = static_cast<float>(step.rate * trust);
    const Unbias unbias = unbias_of(step);
    for (std::size_t i = 0; i < place.run.size; ++i)
      place.run.weights[i] -= factor * change(place, unbias, i);
  }

 protected:
  /// The moments of this step.
  void advance(const Place& place, const Step& step) const {
    const auto b1 = static_cast<float>(options_.momentum);
    const auto b2 = static_cast<float>(options_.beta2);
    const auto scale = static_cast<float>(step.scale);
    for (std::size_t i = 0; i < place.run.size; ++i) {
      const float gradient = place.run.gradient[i] * scale;
      place.states[0][i] = b1 * place.states[0][i] + (1 - b1) * gradient;
      place.states[1][i] = b2 * place.states[1][i] + (1 - b2) * gradient * gradient;
    }
  }
  /// The moments begin at 0, and these make up for it.
  struct Unbias {
    float first, second;
  };
  Unbias unbias_of(const Step& step) const {
    const auto t = static_cast<double>(step.number);
    return {static_cast<float>(1 / (1 - std::pow(options_.momentum, t))),
            static_cast<float>(1 / (1 - std::pow(options_.beta2, t)))};
  }
  float change(const Place& place, const Unbias& unbias, std::size_t i) const {
    return place.states[0][i] * unbias.first /
               (std::sqrt(place.states[1][i] * unbias.second) +
                static_cast<float>(options_.epsilon)) +
           static_cast<float>(options_.weight_decay) * place.run.weights[i];
  }
};

class Lamb : public Adam {
 public:
  using Adam::Adam;
  bool by_unit() const override { return true; }
  void prepare(const Place& place, const Step& step, double* norms) override {
    advance(place, step);
    const Unbias unbias = unbias_of(step);
    for (std::size_t i = 0; i < place.run.size; ++i) {
      const double weight = place.run.weights[i], by = change(place, unbias, i);
      norms[0] += weight * weight;
      norms[1] += by * by;
    }
  }
};

}  // namespace

std::unique_ptr<Optimiser> make_adam(const OptimiserOptions& options) {
  return std::make_unique<Adam>(options);
}
std::unique_ptr<Optimiser> make_lamb(const OptimiserOptions& options) {
  return std::make_unique<Lamb>(options);
}

}  // namespace tutti::trainer
