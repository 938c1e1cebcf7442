// Work and Group: asynchronous calls as their users see them.
#include "comm/state.h"

namespace tutti {
namespace {

struct OpenGroup {
  bool open = false;
  std::vector<Work> works;
};
thread_local OpenGroup current_group;

}  // namespace

Status Work::wait() {
  if (state_ == nullptr) return Error{Code::kInvalidArgument, "wait: this Work was never started"};
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock,
                       [this] { return state_->done; });  // Bounded by the call's own deadline.
  return state_->outcome();
}

Status Work::wait(std::chrono::nanoseconds timeout) {
  if (state_ == nullptr) return Error{Code::kInvalidArgument, "wait: this Work was never started"};
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_for(lock, timeout, [this] { return state_->done; })) {
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

bool in_group() { return current_group.open; }
void add_to_group(Work work) { current_group.works.push_back(std::move(work)); }

Group::Group() {
  open_ = !current_group.open;  // Nested: the outer one keeps the calls, this one is empty.
  if (open_) current_group = {true, {}};
}

Group::~Group() {
  if (open_) (void)end();
}

Status Group::end() {
  if (!open_)
    return Error{Code::kInvalidArgument, "group: already ended, or opened within another"};
  open_ = false;
  std::vector<Work> works = std::move(current_group.works);
  current_group = {};
  Status first;
  for (Work& work : works) {
    Status status = work.wait();
    if (!status && first) first = std::move(status);
  }
  return first;
}

}  // namespace tutti
