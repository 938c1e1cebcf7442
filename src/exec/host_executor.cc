#include "exec/host_executor.h"

#include <unistd.h>

#include <algorithm>

#include "base/clock.h"
#include "base/log.h"

namespace tutti::exec {
namespace {

// After so long a look at the network is due, though a rank finds all it needs.
constexpr std::int64_t kLongUnseenMs = 10;
// How long a rank that leaves waits for a network that still carries what it sent.
constexpr std::chrono::milliseconds kLongestFarewell{60'000};

}  // namespace

HostExecutor::HostExecutor(std::unique_ptr<Endpoint> endpoint, int me, Options options)
    : endpoint_(std::move(endpoint)),
      flight_(options.flight),
      board_(*endpoint_, me, flight_),
      call_(static_cast<std::size_t>(team().ranks)),
      adapt_{.on = options.adapt,
             .eager_limits = EagerLimits(options.adapt, options.eager_limit_bytes,
                                         options.mapped_eager_limit_bytes),
             .plan_trials = PlanTrials(options.adapt),
             .slot_stores = SlotStores(options.adapt),
             .cpus = CpuBalancer(options.adapt, board_, options.wait.ranks_per_cpu)},
      plans_(board_, call_, adapt_,
             {std::move(options.plans), options.read_from_bytes, options.stream_from_bytes,
              options.machine_ranks}),
      eager_(board_, call_, plans_.buffers(), adapt_),
      watchdog_(board_, call_, options.timeout, std::move(options.places)),
      agreement_(board_, call_),
      messages_(board_, agreement_, watchdog_, options.stream_from_bytes / 2,
                options.most_unexpected),
      wait_(options.wait),
      // Over a network a look is a system call, and nobody wakes one peer after another.
      patience_(options.wait.ranks_per_cpu > 1 || team().remote_link != nullptr
                    ? 0
                    : options.wait.yields),
      owner_(getpid()) {
  awaited_.reserve(static_cast<std::size_t>(team().ranks));
}

HostExecutor::~HostExecutor() {
  if (getpid() != owner_) return;  // In a forked child the rank is the parent's.
  const auto failed = [this] { return broken() || board_.region().aborted(); };
  if (!failed()) look_at_last_call();
  // release: what this rank wrote for others is there.
  board_.region().status(team().me).left.store(1 + board_.number(), std::memory_order_release);
  // After a failure the abort word says all, and those that recover see that the link has ended.
  if (!failed() && team().remote_link != nullptr)
    team().remote_link->say_left(std::min(watchdog_.timeout(), kLongestFarewell));
}

/// A rank that only gave in its last call learns at its next one that others made another call.
/// There is none, so it looks now; there is nobody to return the error to.
void HostExecutor::look_at_last_call() noexcept {
  watchdog_.claim_link();
  walled([this] {
    if (!writers_agree()) log::error(log::Part::kCalls, "{}", status_.error().to_string());
  });
  watchdog_.free_link();
}

void HostExecutor::begin(const Call& call) {
  watchdog_.claim_link();
  if (!watchdog_.over() && !writers_agree()) [[unlikely]]
    return;
  eager_call_ = exposed_ = false;
  watchdog_.went_on();
  call_.begin(call, team().me);
  if (watchdog_.over()) {
    end_by_abort();
    return;
  }
  eager_call_ = eager_.takes();
  if (eager_call_)
    eager_.begin();
  else
    plans_.begin();
  const std::size_t kind =
      call_.barrier ? flight::kBarrier : static_cast<std::size_t>(call_.collective);
  flight_.begin_run(board_.number(), kind, std::max(call_.in_bytes, call_.out_bytes), eager_call_);
  adapt_.cpus.show();
  phase_ = Phase::kCredit;
}

/// The part of begin that depends on buffers, or on how often it was done.
void HostExecutor::begin_again(const void* input, void* output) {
  if (!writers_agree()) [[unlikely]]
    return;
  call_.input = static_cast<const std::byte*>(input);
  call_.output = static_cast<std::byte*>(output);
  watchdog_.went_on();
  board_.repeat();
  if (board_.number() % CpuBalancer::kPeriod == 0) adapt_.cpus.show();
  phase_ = Phase::kCredit;
}

Poll HostExecutor::poll() {
  const Poll result = step();
  if (result != Poll::kPending) watchdog_.went_on();
  if (team().remote_link == nullptr || result != Poll::kPending) return result;
  // A look at the network is a system call: not while there is something to do without. What it
  // moves may be of messages, so it is no news of this call.
  looked_at_link_ = coarse_ms();
  return team().remote_link->progress() ? Poll::kProgressed : Poll::kPending;
}

/// A round: waits for credit, writes this rank's lines, gathers those of the others, goes on.
Poll HostExecutor::step() {
  if (phase_ > Phase::kGather) return step_lanes();
  const Phase before = phase_;
  if (before == Phase::kCredit) {
    if (board_.round().writes) {
      if (!board_.has_credit() && !find_credit()) return Poll::kPending;
      if (eager_call_) {
        eager_.publish();
      } else {
        plans_.announce();
        exposed_ = buffers().some_near();
      }
    }
    phase_ = Phase::kGather;
  }
  if (!board_.gathered()) {
    const int suspect = board_.take_suspect();
    if (suspect >= 0) [[unlikely]] {
      if (fails(agreement_.compare(suspect)) && phase_ == Phase::kDone) return Poll::kDone;
    }
    return phase_ == before ? Poll::kPending : Poll::kProgressed;
  }
  if (!eager_call_) return end_plan_round();
  eager_.finish();
  return finish();
}

Poll HostExecutor::end_plan_round() {
  auto again = plans_.proceed();
  if (!again) return fail(std::move(again.error()));
  phase_ = *again ? Phase::kCredit : Phase::kLanes;
  return *again || plans_.start() ? Poll::kProgressed : end_by_abort();
}

Poll HostExecutor::step_lanes() {
  if (phase_ == Phase::kLeave) return leave();
  if (phase_ != Phase::kLanes) return poll_stopping();
  const Poll result = plans_.poll();
  if (board_.region().ending()) [[unlikely]]
    return end_by_abort();
  if (plans_.failed()) [[unlikely]]
    return fail(plans_.error());
  if (result == Poll::kDone) return finish();
  if (result == Poll::kProgressed && team().remote_link != nullptr) team().remote_link->flush();
  return result;
}

Poll HostExecutor::finish() {
  phase_ = Phase::kDone;
  board_.finish();
  // As leave does.
  if (team().remote_link != nullptr || board_.region().ending()) {
    watchdog_.went_on();  // Before the flush, which tells the others that the wait is over.
    return leave();
  }
  return end_ok();
}

/// This rank's part is done. What it wrote last still has to leave: nobody else will see to that.
Poll HostExecutor::leave() {
  if (RemoteLink* const remote_link = team().remote_link; remote_link != nullptr) {
    phase_ = Phase::kLeave;
    remote_link->flush();
    if (remote_link->pending()) return Poll::kPending;
    // A rank that finds all it needs does not look at the network, where an abort may wait.
    if (coarse_ms() - looked_at_link_ > kLongUnseenMs) {
      looked_at_link_ = coarse_ms();
      remote_link->progress();
    }
    remote_link->keep();  // What may have to be sent again.
    phase_ = Phase::kDone;
  }
  // No rank returns ok for a call that another rank was told has failed.
  if (board_.region().ending()) [[unlikely]]
    return end_by_abort();
  return end_ok();
}

Status HostExecutor::finish_running() {
  // What poll does beside a step is for calls that wait, or for the network.
  const Poll first = team().remote_link == nullptr ? step() : poll();
  return first == Poll::kDone ? take_status() : finish_waiting(first);
}

}  // namespace tutti::exec
