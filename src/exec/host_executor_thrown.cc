// How HostExecutor ends a call in which memory runs out.
#include <new>

#include "base/wall.h"
#include "exec/host_executor.h"

namespace tutti::exec {

/// Must not need memory: texts fit into the string objects themselves, or are left out.
void HostExecutor::fail_by(const std::exception& thrown) noexcept {
  const bool before = broken_;
  Error error = thrown_error("", thrown);
  error.rank = error.peer = Rank{me_};
  try {
    if (before || region_.aborted()) {
      error = region_.abort_error();
      error.rank = Rank{me_};
    } else {
      error.what = describe_call(what_, call_.count) + ": rank " + std::to_string(me_) + ": " +
                   thrown_error("call " + std::to_string(number_), thrown).what;
    }
  } catch (const std::bad_alloc&) {  // The short text has to do.
  }
  give_up();
  (void)region_.abort(error);
  try {
    failure_ = error;
  } catch (const std::bad_alloc&) {
    failure_ = Error{error.code, "out of memory", error.rank, error.peer};
  }
  status_ = std::move(error);
  try {
    pass_on_abort();
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

Status HostExecutor::outcome(const MessageBatch& batch) const noexcept {
  if (batch.open == 0 && !region_.ending()) return ok();
  try {
    return message_error(batch);
  } catch (const std::bad_alloc&) {
    return Error{Code::kSystem, "out of memory", Rank{me_}, Rank{me_}};
  }
}

}  // namespace tutti::exec
