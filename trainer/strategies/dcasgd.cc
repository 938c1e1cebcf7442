// Asynchronous SGD with delay compensation: a gradient g comes from weights w_old that a worker got
// some updates ago. What it would be at today's weights follows from the loss's second derivative,
// for which g g (element by element) stands in.
//
//   g' = g + lambda g g (w - w_old)          w = update(w, g')
//   sent: as by the asynchronous parameter server; a server also holds w_old of each worker
//
// Zheng et al.: Asynchronous Stochastic Gradient Descent with Delay Compensation, 2017.
#include <algorithm>

#include "trainer/strategies/async_ps.h"

namespace tutti::trainer {
namespace {

class DelayCompensated : public AsyncServer {
 public:
  using AsyncServer::AsyncServer;

  Status begin(std::span<const float> weights) override {
    TUTTI_RETURN_IF_ERROR(AsyncServer::begin(weights));
    if (!serves()) return ok();
    for (std::size_t w = 0; w < workers(); ++w) {
      TUTTI_TRY(Floats given, make(Holds::kParameters, weights_.size()));
      given_.push_back(std::move(given));
      gives(w);
    }
    return ok();
  }
  Status restored() override {
    for (std::size_t w = 0; w < given_.size(); ++w) gives(w);
    return AsyncServer::restored();
  }

 private:
  void compensate(std::size_t worker) override {
    const auto lambda = static_cast<float>(options().delay_lambda);
    const float *now = weights_.data(), *old = given_[worker].data();
    float* g = gradient_.data();
    for (std::size_t i = 0; i < gradient_.size(); ++i)
      g[i] += lambda * g[i] * g[i] * (now[i] - old[i]);
  }
  void gives(std::size_t worker) override {
    std::copy_n(weights_.data(), weights_.size(), given_[worker].data());
  }

  std::vector<Floats> given_;  // By worker: the weights that it has.
};

}  // namespace

std::unique_ptr<Strategy> make_dcasgd(const Setup& setup) {
  return std::make_unique<DelayCompensated>(setup);
}

}  // namespace tutti::trainer
