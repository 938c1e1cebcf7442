// Asynchronous SGD with delay compensation: a gradient g comes from weights w_old that a worker got
// some updates ago. What it would be at today's weights follows from the loss's second derivative,
// for which g g (element by element) stands in.
//
//   g' = g + lambda g g (w - w_old)          w = update(w, g')
//   sent: as by the asynchronous parameter server; a server also holds w_old of each worker
//
// Zheng et al.: Asynchronous Stochastic Gradient Descent with Delay Compensation, 2017.
#include "trainer/strategies/ps.h"

namespace tutti::trainer {
namespace {

class DelayCompensated : public ParameterServer {
 public:
  explicit DelayCompensated(const Setup& setup) : ParameterServer(setup, Mode::kAsynchronous) {}

 protected:
  bool compensates() const override { return true; }
  void compensate(float* gradient, const float* weights, const float* old,
                  std::size_t size) const override {
    const auto lambda = static_cast<float>(options().delay_lambda);
    for (std::size_t i = 0; i < size; ++i)
      gradient[i] += lambda * gradient[i] * gradient[i] * (weights[i] - old[i]);
  }
};

}  // namespace

std::unique_ptr<Strategy> make_dcasgd(const Setup& setup) {
  return std::make_unique<DelayCompensated>(setup);
}

}  // namespace tutti::trainer
