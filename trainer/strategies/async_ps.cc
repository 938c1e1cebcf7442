// Asynchronous parameter server (async_ps.h).
//
//   worker r: sends g_r, gets w          server, for each g_r: w = update(w, N/B g_r), at 1/N of
//   the rate, where N is the number of workers sent in each step: S on a worker, S * workers /
//   servers on a server held: parameters and gradients on a worker; parameters, a gradient and the
//   optimiser on a server, of its part
//
// Li et al.: Scaling Distributed Machine Learning with the Parameter Server, 2014. Bounded
// staleness: Ho et al.: More Effective Distributed ML via a Stale Synchronous Parallel Parameter
// Server, 2013.
#include "trainer/strategies/async_ps.h"

#include <algorithm>

namespace tutti::trainer {

Status AsyncServer::begin(std::span<const float> weights) {
  TUTTI_RETURN_IF_ERROR(ParameterServer::begin(weights));
  clocks_.assign(workers(), 0);
  versions_.assign(workers(), 0);
  waits_.assign(workers(), 0);
  return ok();
}

Status AsyncServer::serve(const StepInfo& info) {
  // As many messages as workers in each step: by the end of an epoch, all of them.
  for (std::size_t message = 0; message < workers(); ++message)
    TUTTI_RETURN_IF_ERROR(serve_next(info, message));
  return ok();
}

/// One gradient, of the worker that is first; so many have come in this step.
Status AsyncServer::serve_next(const StepInfo& info, std::size_t message) {
  Communicator& comm = traffic().communicator();
  Rank from;
  TUTTI_TRY(auto work,
            comm.start_recv_any(gradient_.data(), gradient_.size(), DataType::kFloat32, from));
  TUTTI_RETURN_IF_ERROR(work.wait());
  const auto worker = static_cast<std::size_t>(from.value);
  if (worker >= workers())
    return Error{Code::kInternal, "a server got a gradient from a server", comm.rank(), from};
  oldest_ = std::max(oldest_, version_ - versions_[worker]);
  compensate(worker);
  ++version_;
  // N updates for each step of the others: each changes the weights by its share.
  const auto n = static_cast<double>(workers());
  TUTTI_RETURN_IF_ERROR(updater_.update({(info.number - 1) * workers() + message + 1, info.rate / n,
                                         n / static_cast<double>(info.labels)}));
  ++clocks_[worker];
  waits_[worker] = 1;
  // Workers that are not too far ahead of the slowest get weights. They may have waited for this.
  const std::uint64_t slowest = *std::min_element(clocks_.begin(), clocks_.end());
  for (std::size_t w = 0; w < workers(); ++w) {
    if (waits_[w] == 0 || clocks_[w] > slowest + static_cast<std::uint64_t>(options().staleness))
      continue;
    waits_[w] = 0;
    versions_[w] = version_;
    gives(w);
    TUTTI_RETURN_IF_ERROR(send_weights(w));
  }
  return ok();
}

Status AsyncServer::begin_evaluation() {
  TUTTI_RETURN_IF_ERROR(traffic().all_reduce(&oldest_, 1, DataType::kUint64, ReduceOp::kMax));
  return ParameterServer::begin_evaluation();
}

std::string AsyncServer::note() const {
  return ParameterServer::note() + ", gradients at most " + std::to_string(oldest_) +
         " updates old";
}

std::unique_ptr<Strategy> make_async_ps(const Setup& setup) {
  return std::make_unique<AsyncServer>(setup);
}

}  // namespace tutti::trainer
