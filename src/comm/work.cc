// Work: asynchronous calls as their users see them.
#include "base/wall.h"
#include "comm/state.h"

namespace tutti {

Status Work::wait() {
  // relaxed: if it is this thread's group, this thread wrote it.
  if (state_ != nullptr && in_group() && !state_->begun.load(std::memory_order_relaxed)) {
    return Error{Code::kInvalidArgument,
                 "wait: this message begins when the group ends that this thread has open"};
  }
  return wait(std::chrono::nanoseconds::max());  // The call's own deadline comes before that.
}

Status Work::wait(std::chrono::nanoseconds timeout) {
  if (state_ == nullptr) return Error{Code::kInvalidArgument, "wait: this Work was never started"};
  TUTTI_RETURN_IF_ERROR(state_->is_here());
  std::unique_lock lock(state_->mutex);
  if (!state_->done) TUTTI_RETURN_IF_ERROR(Progress::may_wait("wait"));
  if (!state_->changed.wait_until(lock, Deadline::after(timeout).at,
                                  [this] { return state_->done; })) {
    return Error{Code::kTimeout,
                 "wait: not done yet; the call goes on and can be waited for again"};
  }
  return state_->outcome();
}

bool Work::test() const {
  if (state_ == nullptr) return false;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

void Work::then(std::function<void(const Status&)> callback) {
  if (state_ == nullptr)
    return callback(Error{Code::kInvalidArgument, "then: this Work was never started"});
  {
    std::unique_lock lock(state_->mutex);
    if (!state_->done) {
      // If there is no memory for the list, call the callback now with that error.
      const Status kept = walled("then", [&] {
        state_->callbacks.emplace_back();
        return ok();
      });
      if (kept) {
        state_->callbacks.back() = std::move(callback);
        return;
      }
      lock.unlock();
      return Work::State::tell(callback, kept);
    }
  }
  Work::State::tell(callback, state_->outcome());
}

}  // namespace tutti
