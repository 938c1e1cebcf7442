// Work: asynchronous calls as their users see them.
#include "comm/state.h"

namespace tutti {

Status Work::wait() {
  if (state_ == nullptr) return Error{Code::kInvalidArgument, "wait: this Work was never started"};
  // relaxed: if it is this thread's group, this thread wrote it.
  if (in_group() && !state_->begun.load(std::memory_order_relaxed)) {
    return Error{Code::kInvalidArgument,
                 "wait: this message begins when the group ends that this thread has open"};
  }
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock,
                       [this] { return state_->done; });  // Bounded by the call's own deadline.
  return state_->outcome();
}

Status Work::wait(std::chrono::nanoseconds timeout) {
  if (state_ == nullptr) return Error{Code::kInvalidArgument, "wait: this Work was never started"};
  std::unique_lock lock(state_->mutex);
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
    const std::lock_guard lock(state_->mutex);
    if (!state_->done) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback(state_->outcome());
}

}  // namespace tutti
