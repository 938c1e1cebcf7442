// Stochastic gradient descent with momentum (Polyak, 1964), and LARS, which scales its steps by
// unit (You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks, 2017).
//
//   SGD   v = mu v + g + lambda w             w = w - eta v
//   LARS  v = mu v + trust (g + lambda w)     w = w - eta v,   trust = 0.01 |w| / |g + lambda w|
#include "trainer/optimisers/optimisers.h"

namespace tutti::trainer {
namespace {

constexpr double kLarsTrust = 0.01;

class Sgd : public Optimiser {
 public:
  using Optimiser::Optimiser;
  std::size_t states() const override { return 1; }
  void update(const Place& place, const Step& step, double trust) override {
    const auto mu = static_cast<float>(options_.momentum);
    const auto decay = static_cast<float>(options_.weight_decay);
    const auto scale = static_cast<float>(step.scale);
    const auto eta = static_cast<float>(step.rate);
    const auto local = static_cast<float>(by_unit() ? kLarsTrust * trust : 1);
    const Run& run = place.run;
    float* velocity = place.states[0];
    for (std::size_t i = 0; i < run.size; ++i) {
      const float change = run.gradient[i] * scale + decay * run.weights[i];
      velocity[i] = mu * velocity[i] + local * change;
      run.weights[i] -= eta * velocity[i];
    }
  }
};

class Lars : public Sgd {
 public:
  using Sgd::Sgd;
  bool by_unit() const override { return true; }
  void prepare(const Place& place, const Step& step, double* norms) override {
    const Run& run = place.run;
    for (std::size_t i = 0; i < run.size; ++i) {
      const double weight = run.weights[i];
      const double change = run.gradient[i] * step.scale + options_.weight_decay * weight;
      norms[0] += weight * weight;
      norms[1] += change * change;
    }
  }
};

}  // namespace

std::unique_ptr<Optimiser> make_sgd(const OptimiserOptions& options) {
  return std::make_unique<Sgd>(options);
}
std::unique_ptr<Optimiser> make_lars(const OptimiserOptions& options) {
  return std::make_unique<Lars>(options);
}

}  // namespace tutti::trainer
