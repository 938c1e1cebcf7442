#include "cuda/comm/health.h"

#include <chrono>

#include <fmt/format.h>

namespace tutti {
namespace {

constexpr std::chrono::nanoseconds kBetweenLooks = std::chrono::milliseconds(50);
constexpr std::chrono::nanoseconds kGrace = std::chrono::milliseconds(500);

std::int64_t now_ns() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace

Status Health::failure() const {
  Status found = find_failure();
  if (!found) record_.fail(found.error());
  return found;
}

void Health::watch() const {
  // The communicator keeps the error for the next call or check.
  if (!failure()) return;
  // Where a stream waits for a signal CUDA may not answer.
  if (signals_.waits()) return record_.look(false, signals_.awaited());
  const RelaxedCapture relaxed;
  const exec::OnDevice on(rank_.device);
  record_.look(true, -1);
}

Status Health::find_failure() const {
  const Rank me = rank_.me;
  exec::CudaNetwork* const network = rank_.network();
  const Region& region = rank_.host().executor->endpoint().region();
  const bool others_failed = region.aborted() || (network != nullptr && network->aborted());
  const auto reported = [me](Error error) {
    error.rank = me;
    return error;
  };
  const bool stopped = stopped_.load(std::memory_order_relaxed);
  if (stopped || others_failed) {
    end_waits();
    if (stopped) return Error{Code::kAborted, "this rank has stopped its calls", me, me};
    return reported(region.aborted() ? region.abort_error() : network->abort_error());
  }
  Status own = rank_.mesh->rings().check(me.value);
  if (own) own = signals_.check();
  if (own) own = look_at_peers();
  if (own) return own;
  own.error().what += fmt::format("; this rank has begun {} calls", order_.calls());
  const int peer = own.error().peer.value;
  if (network != nullptr && peer >= 0 && own.error().code == Code::kTimeout) {
    const std::string why = network->why_unreachable(peer);
    if (!why.empty()) own.error().what += fmt::format("; rank {} {}", peer, why);
  }
  // Where the others look; and other threads of this rank, once its stream goes on.
  rank_.host().executor->abort(own.error());
  if (network != nullptr) network->abort(own.error());
  end_waits();  // In case they have not ended by themselves.
  return own;
}

void Health::abort(std::string_view reason) {
  rank_.control.abort(reason);  // First, because peers whose kernels end ask for the reason.
  if (rank_.network() != nullptr)
    rank_.network()->abort({Code::kAborted, std::string(reason), rank_.me});
  end_waits();
}

void Health::revoke(std::string_view reason) {
  rank_.control.revoke(reason);
  if (rank_.network() != nullptr)
    rank_.network()->abort({Code::kRevoked, std::string(reason), rank_.me, rank_.me});
  end_waits();
}

void Health::stop() {
  stopped_.store(true, std::memory_order_relaxed);
  end_waits();
}

void Health::end_waits() const {
  rank_.mesh->rings().abort(rank_.me.value);
  signals_.release();
}

/// Empty, or why a peer has ended, in words that follow "rank 3 ". The network's proxy looks all
/// the time at peers on other hosts.
std::string Health::why_ended(int peer) const {
  const Endpoint& endpoint = rank_.host().executor->endpoint();
  switch (endpoint.presence(peer).state) {
    case Presence::State::kLeft: return "";  // No failure: it did its part.
    case Presence::State::kDead: return endpoint.why_dead(peer);
    case Presence::State::kHere: break;
  }
  return rank_.network() != nullptr ? rank_.network()->why_unreachable(peer) : "";
}

/// Whether calls have not ended. A stream that waits says so itself: CUDA may not answer while
/// another thread copies behind that wait.
bool Health::has_work() const {
  if (signals_.waits()) return true;
  const RelaxedCapture relaxed;
  const exec::OnDevice on(rank_.device);
  return !order_.done();
}

/// kPeerFailed: a peer has ended, and this rank's kernels wait for it.
Status Health::look_at_peers() const {
  const std::int64_t now = now_ns();
  std::int64_t due = next_look_.load(std::memory_order_relaxed);
  if (now < due || !next_look_.compare_exchange_strong(due, now + kBetweenLooks.count(),
                                                       std::memory_order_relaxed)) {
    return ok();
  }
  int peer = 0;
  std::string why;
  for (; peer < rank_.rank_count; ++peer) {
    if (peer != rank_.me.value) why = why_ended(peer);
    if (!why.empty()) break;
  }
  if (why.empty() || !has_work()) {
    ended_since_.store(0, std::memory_order_relaxed);
    return ok();
  }
  std::int64_t since = 0;
  if (ended_since_.compare_exchange_strong(since, now, std::memory_order_relaxed)) return ok();
  if (now - since < kGrace.count()) return ok();
  return Error{Code::kPeerFailed,
               fmt::format("rank {} {}, and calls of this rank wait for it", peer, why), rank_.me,
               Rank{peer}};
}

}  // namespace tutti
