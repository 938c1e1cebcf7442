// Parameter server (ps.h).
//
//   worker r: sends g_r, gets w          server: w = update(w, 1/B sum of g_r)
//   sent in each step: S on a worker, S * workers / servers on a server
//   held: parameters and gradients on a worker; parameters, a gradient of each worker, and the
//   optimiser on a server, of its part
//
// Li et al.: Scaling Distributed Machine Learning with the Parameter Server, 2014.
#include "trainer/strategies/ps.h"

#include <algorithm>

namespace tutti::trainer {

Status check_servers(int servers, std::size_t ranks) {
  const auto refuse = [](const std::string& what) { return Error{Code::kInvalidArgument, what}; };
  if (ranks < 2) return refuse("a parameter server needs 2 ranks or more");
  if (static_cast<std::size_t>(servers) < ranks) return ok();
  return refuse(std::to_string(servers) + " servers leave no worker: of " + std::to_string(ranks) +
                " ranks at most " + std::to_string(ranks - 1) + " can be servers");
}

std::size_t ParameterServer::servers() const {  // begin() has checked it.
  return static_cast<std::size_t>(options().servers);
}

ParameterServer::Part ParameterServer::part(std::size_t server) const {
  const std::size_t size = setup_.network.size(), begin = size * server / servers();
  return {begin, size * (server + 1) / servers() - begin};
}

Strategy::Share ParameterServer::share() const { return {traffic().me(), workers(), serves()}; }

Status ParameterServer::begin(std::span<const float> weights) {
  TUTTI_RETURN_IF_ERROR(check_servers(options().servers, traffic().ranks()));
  const Part mine = serves() ? part(traffic().me() - workers()) : Part{0, weights.size()};
  TUTTI_TRY(weights_, make(Holds::kParameters, mine.size));
  TUTTI_TRY(gradient_, make(Holds::kGradients, mine.size));
  std::copy_n(weights.data() + mine.begin, mine.size, weights_.data());
  if (!serves()) return ok();
  rest_.resize(weights.size());
  std::vector<Run> runs;
  for (std::size_t u = 0; u < units().size(); ++u) {
    const std::size_t begin = std::max(units()[u].offset, mine.begin);
    const std::size_t end = std::min(units()[u].offset + units()[u].size, mine.begin + mine.size);
    if (begin >= end) continue;
    runs.push_back({u, begin, end - begin, weights_.data() + begin - mine.begin,
                    gradient_.data() + begin - mine.begin});
  }
  TUTTI_TRY(updater_, Updater::make(options().optimiser, setup_.ledger, runs, units().size()));
  return ok();
}

Result<const float*> ParameterServer::parameters(std::size_t unit) {
  const float* whole = evaluated_.size() > 0 ? evaluated_.data() : weights_.data();
  if (serves() && evaluated_.size() == 0) whole = rest_.data();
  return whole + units()[unit].offset;
}

Result<Strategy::Target> ParameterServer::gradient(std::size_t unit) {
  return Target{(serves() ? rest_.data() : gradient_.data()) + units()[unit].offset, !first_batch_};
}

Status ParameterServer::step(const StepInfo& info) { return serves() ? serve(info) : work(); }

Status ParameterServer::work() {
  std::vector<Message> gradients, weights;
  for (std::size_t s = 0; s < servers(); ++s) {
    gradients.push_back({gradient_.data() + part(s).begin, part(s).size, workers() + s});
    weights.push_back({weights_.data() + part(s).begin, part(s).size, workers() + s});
  }
  return traffic().exchange(gradients, weights);
}

Status ParameterServer::serve(const StepInfo& info) {
  while (inbox_.size() < workers()) {
    TUTTI_TRY(Floats inbox, make(Holds::kGradients, gradient_.size()));
    inbox_.push_back(std::move(inbox));
  }
  for (std::size_t w = 0; w < workers(); ++w)
    TUTTI_RETURN_IF_ERROR(traffic().recv(inbox_[w].data(), inbox_[w].size(), w));
  // A balanced tree, as the library's: the bits are those of an all-reduce.
  for (std::size_t step = 1; step < workers(); step *= 2) {
    for (std::size_t w = 0; w + step < workers(); w += 2 * step) {
      for (std::size_t i = 0; i < inbox_[w].size(); ++i)
        inbox_[w].data()[i] += inbox_[w + step].data()[i];
    }
  }
  std::copy_n(inbox_[0].data(), inbox_[0].size(), gradient_.data());
  TUTTI_RETURN_IF_ERROR(
      updater_.update({info.number, info.rate, 1.0 / static_cast<double>(info.labels)}));
  for (std::size_t w = 0; w < workers(); ++w) TUTTI_RETURN_IF_ERROR(send_weights(w));
  return ok();
}

/// All ranks get all weights. Collective.
Status ParameterServer::hand_out(float* whole) {
  for (std::size_t s = 0; s < servers(); ++s) {
    float* into = whole + part(s).begin;
    const std::size_t root = workers() + s;
    if (traffic().me() == root) std::copy_n(weights_.data(), part(s).size, into);
    TUTTI_RETURN_IF_ERROR(traffic().call({.collective = Collective::kBroadcast,
                                          .input = into,
                                          .output = into,
                                          .count = part(s).size,
                                          .type = DataType::kFloat32,
                                          .root = Rank{static_cast<int>(root)}}));
  }
  return ok();
}

Status ParameterServer::begin_evaluation() {
  TUTTI_TRY(evaluated_, make(Holds::kTransient, setup_.network.size()));
  return hand_out(evaluated_.data());
}

Status ParameterServer::end_evaluation() {
  evaluated_ = {};
  return ok();
}

std::vector<Piece> ParameterServer::pieces() {
  return serves() ? updater_.pieces(Held::kInParts) : std::vector<Piece>{};
}

Status ParameterServer::restored() { return hand_out(serves() ? rest_.data() : weights_.data()); }

std::string ParameterServer::note() const {
  return std::to_string(workers()) + " workers, " + std::to_string(servers()) + " servers";
}

std::unique_ptr<Strategy> make_ps(const Setup& setup) {
  return std::make_unique<ParameterServer>(setup);
}

}  // namespace tutti::trainer
