// How HostExecutor ends a call early: by an error, an abort, or an exception.
#include <new>

#include "base/wall.h"
#include "exec/host_executor.h"

namespace tutti::exec {

Poll HostExecutor::fail(Error error) {
  status_ = watchdog_.report(std::move(error));
  record_failure(status_.error().code);
  messages_.give_up();
  return stop();
}

/// Whether a call has failed by what was found.
bool HostExecutor::fails(std::optional<Error> found) {
  if (!found) return false;
  fail(*std::move(found));
  return true;
}

/// Some rank has ended the communicator.
Poll HostExecutor::end_by_abort() {
  watchdog_.pass_on_abort();
  status_ = watchdog_.broken_error(call_.describe());
  record_failure(status_.error().code);
  messages_.give_up();
  return stop();
}

/// Before `give_up`, which writes the record to a file. A call that had not shown itself is not in
/// it.
void HostExecutor::record_failure(Code code) noexcept {
  flight_.end_failed(board_.log().shown(), static_cast<int>(code));
}

/// The call has failed. It is over once no rank writes into its buffers any more.
Poll HostExecutor::stop() {
  watchdog_.begin_stop();
  phase_ = exposed_ ? Phase::kStopping : Phase::kDone;
  return poll_stopping();
}

Poll HostExecutor::poll_stopping() {
  if (phase_ == Phase::kStopping && !watchdog_.has_stopped(status_.error())) return Poll::kPending;
  phase_ = Phase::kDone;
  return Poll::kDone;
}

/// Must not need memory: texts fit into the string objects themselves, or are left out.
void HostExecutor::fail_by(const std::exception& thrown) noexcept {
  const Region& region = board_.region();
  const bool before = watchdog_.broken();
  Error error = thrown_error("", thrown);
  error.rank = error.peer = Rank{team().me};
  try {
    if (before || region.aborted()) {
      error = region.abort_error();
      error.rank = Rank{team().me};
    } else {
      error.what = call_.describe() + ": rank " + std::to_string(team().me) + ": " +
                   thrown_error("call " + std::to_string(board_.number()), thrown).what;
    }
  } catch (const std::bad_alloc&) {  // The short text has to do.
  }
  if (phase_ != Phase::kDone) record_failure(error.code);
  messages_.give_up();
  (void)region.abort(error);
  try {
    messages_.set_failure(error);
  } catch (const std::bad_alloc&) {
    messages_.set_failure({error.code, "out of memory", error.rank, error.peer});
  }
  status_ = std::move(error);
  try {
    watchdog_.pass_on_abort();
    if (phase_ != Phase::kDone) (void)stop();
  } catch (const std::bad_alloc&) {  // The others find this rank's connection closed, or time out.
    phase_ = Phase::kDone;
  }
}

/// Ends the call of this thread, which has thrown. Peers may still write into its buffers.
Status HostExecutor::finish_after(const std::exception& thrown) {
  fail_by(thrown);
  Status status;
  return walled([&] { status = finish_running(); }) ? std::move(status) : take_status();
}

Status HostExecutor::look_at(std::span<const int> ranks, const std::string& waiting) {
  watchdog_.claim_link();
  if (team().remote_link != nullptr) team().remote_link->progress();
  Status found;
  if (board_.region().ending()) found = watchdog_.broken_error(waiting);
  for (const int rank : ranks) {
    if (!found || rank == team().me) continue;
    const Presence there = endpoint_->presence(rank);
    if (there.state == Presence::State::kHere) continue;
    Error error{Code::kPeerFailed, waiting + ": " + endpoint_->why_gone(rank, there),
                Rank{team().me}, Rank{rank}};
    error = watchdog_.with_place(std::move(error));
    (void)board_.region().abort(error);
    found = std::move(error);
  }
  if (!found) {
    messages_.give_up();
    watchdog_.pass_on_abort();
  }
  watchdog_.free_link();
  return found;
}

Status HostExecutor::health(std::string_view function, bool idle, Gone counted) {
  const std::string name(function);
  if (board_.region().ending()) return watchdog_.broken_error(name);
  if (!idle) return ok();
  watchdog_.claim_link();
  if (team().remote_link != nullptr) team().remote_link->progress();
  std::optional<Error> found;
  if (board_.region().ending()) found = watchdog_.broken_error(name);
  for (int rank = 0; rank < team().ranks && !found; ++rank) {
    if (rank == team().me) continue;
    const Presence there = endpoint_->presence(rank);
    if (there.state == Presence::State::kHere ||
        (counted == Gone::kDead && there.state == Presence::State::kLeft))
      continue;
    found = watchdog_.with_place({Code::kPeerFailed, name + ": " + endpoint_->why_gone(rank, there),
                                  Rank{team().me}, Rank{rank}});
  }
  watchdog_.free_link();
  return found ? Status(*std::move(found)) : ok();
}

Status HostExecutor::look_at_abort(const Call& call) const {
  if (!board_.region().ending()) [[likely]]
    return ok();
  return watchdog_.broken_error(describe_call(pack(call), call.count));
}

}  // namespace tutti::exec
