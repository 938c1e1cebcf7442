// Waiting for several works.
#include "tutti/wait.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "base/wall.h"
#include "comm/state.h"

namespace tutti {
namespace {

/// What works tell a thread that waits for one of them.
struct FirstDone {
  std::mutex mutex;
  std::condition_variable changed;
  bool any = false;
};

/// A callback of a work.
struct Tell {
  std::shared_ptr<FirstDone> first;
  void operator()(const Status&) const {
    {
      const std::lock_guard lock(first->mutex);
      first->any = true;
    }
    first->changed.notify_all();
  }
};

/// While it lives, each of the works tells `first` when it is done.
class Told {
 public:
  Told(std::span<const Work> works, const std::shared_ptr<FirstDone>& first)
      : works_(works), first_(first) {
    for (Work work : works)  // A copy is another handle of the same.
      if (Work::State::of(work) != nullptr) work.then(Tell{first});
  }
  /// A program that waits for a while, and again and again, must not fill memory with callbacks.
  ~Told() {
    for (const Work& work : works_) {
      if (Work::State::of(work) == nullptr) continue;
      Work::State& state = *Work::State::of(work);
      const std::lock_guard lock(state.mutex);
      std::erase_if(state.callbacks, [this](const auto& callback) {
        const auto* tell = callback.template target<Tell>();
        return tell != nullptr && tell->first == first_;
      });
    }
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

 private:
  std::span<const Work> works_;
  const std::shared_ptr<FirstDone>& first_;
};

/// The place of a work that is done; their number if none is.
std::size_t find_done(std::span<const Work> works) {
  return static_cast<std::size_t>(std::ranges::find_if(works, &Work::test) - works.begin());
}

/// Whether there is anything to wait for, and this thread may do so.
Status check(std::span<const Work> works) {
  bool started = false;
  for (const Work& work : works) {
    if (Work::State::of(work) == nullptr) continue;
    TUTTI_RETURN_IF_ERROR(Work::State::of(work)->is_here());
    started = true;
  }
  if (!started) return Error{Code::kInvalidArgument, "wait_any: no work was started"};
  if (in_group()) {  // Its messages begin at its end.
    return Error{Code::kInvalidArgument, "wait_any: this thread has a group open; end it first"};
  }
  return ok();
}

Result<std::size_t> await_any(std::span<const Work> works, Deadline deadline) {
  TUTTI_RETURN_IF_ERROR(check(works));
  std::size_t place = find_done(works);
  if (place < works.size()) return place;
  TUTTI_RETURN_IF_ERROR(Progress::may_wait("wait_any"));
  const auto first = std::make_shared<FirstDone>();
  const Told told(works, first);
  std::unique_lock lock(first->mutex);
  if (!first->changed.wait_until(lock, deadline.at, [&] { return first->any; })) {
    return Error{Code::kTimeout,
                 "wait_any: none is done yet; they go on and can be waited for again"};
  }
  place = find_done(works);
  if (place < works.size()) return place;
  // Its callback came without it: there was no memory to keep that.
  return Error{Code::kSystem, "wait_any: no memory to wait for so many works"};
}

}  // namespace

Status wait_all(std::span<const Work> works, std::chrono::nanoseconds timeout) {
  return walled("wait_all", [&]() -> Status {
    const Deadline deadline = Deadline::after(timeout);
    Status first = ok();
    for (Work work : works) {
      Status one = timeout == std::chrono::nanoseconds::max()
                       ? work.wait()
                       : work.wait(std::max(deadline.at - std::chrono::steady_clock::now(),
                                            std::chrono::nanoseconds(0)));
      if (!one && first) first = std::move(one);
    }
    return first;
  });
}

Result<std::size_t> wait_any(std::span<const Work> works, std::chrono::nanoseconds timeout) {
  return walled("wait_any", [&] { return await_any(works, Deadline::after(timeout)); });
}

}  // namespace tutti
