#include "work.h"

#include "completions.h"
#include "errors.h"

namespace tutti::python {

void TorchWork::complete(std::exception_ptr failure) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  {
    const std::lock_guard lock(future_mutex_);
    over_ = true;
    failure_ = failure;
    future = future_;
    callbacks.swap(callbacks_);
  }
  auto over = [self = c10::intrusive_ptr<TorchWork>::reclaim_copy(this), failure,
               callbacks = std::move(callbacks)] {
    self->finish(failure);
    for (const auto& callback : callbacks) callback(failure);
  };
  if (!future) return over();
  // First the future: a thread that has waited for the work finds its value there.
  Completions::instance().post(
      [self = c10::intrusive_ptr<TorchWork>::reclaim_copy(this), future, over = std::move(over)] {
        self->tell(*future);
        over();
      });
}

void TorchWork::then(std::function<void(std::exception_ptr)> callback) {
  {
    const std::lock_guard lock(future_mutex_);
    if (!over_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback(failure_);
}

/// It is over, so neither the failure nor the outputs change any more.
void TorchWork::tell(c10::ivalue::Future& future) {
  if (failure_ != nullptr)
    future.setErrorIfNeeded(failure_);
  else
    future.markCompleted(c10::IValue(outputs_));
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
  bool over = false;
  {
    const std::lock_guard lock(future_mutex_);
    if (future_) return future_;
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    over = over_;
  }
  if (over) tell(*future_);
  return future_;
}

bool TorchWork::wait(std::chrono::milliseconds timeout) {
  {
    std::unique_lock lock(mutex_);
    const auto done = [this] { return completed_; };
    if (timeout <= kNoTimeout) {
      cv_.wait(lock, done);  // Bounded by the group's own time limit.
    } else if (!cv_.wait_for(lock, bounded(timeout), done)) {
      raise(std::string(name_) + " (number " + std::to_string(number_) + ")",
            Error{Code::kTimeout,
                  "waited " + std::to_string(timeout.count()) +
                      " ms; it goes on, and can be waited for again",
                  Rank{rank_}});
    }
    if (exception_) std::rethrow_exception(exception_);
  }
  synchronize();
  return true;
}

void TorchWork::abort() {
  if (abort_) abort_();
}

}  // namespace tutti::python
