#include "virtual/windows.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace tutti::virt {
namespace {

// Numbers of signals.
constexpr int kPut = 5, kDone = 63, kSeen = 0;

}  // namespace

WindowUse::WindowUse(Communicator& comm, const Call& call, int number, Random& random)
    : comm_(comm),
      call_(call),
      number_(number),
      ranks_(comm.rank_count()),
      me_(comm.rank().value),
      next_{(me_ + 1) % ranks_},
      previous_{(me_ + ranks_ - 1) % ranks_},
      root_{call.root},
      bytes_(4 * call.count),
      counter_((2 * bytes_ + 7) / 8 * 8),
      random_(random),
      own_(bytes_, call.registered),
      got_(bytes_, call.registered) {}

void WindowUse::pause() {
  if (!random_.one_in(2)) return;
  // In a long run each nap takes a tenth of the deadline more (scheduler.cc): more of them would
  // be a rank that is late by itself.
  if (naps_-- > 0)
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(200)));
  else
    std::this_thread::yield();
}

template <class Value>
void WindowUse::expect(const std::byte* data, Value&& value) {
  for (std::size_t i = 0; i < call_.count; ++i)
    right_ = right_ && is(data, call_.type, i, value(i));
}

Status WindowUse::run() {
  // What the previous rank puts, and behind it, at the root, what all ranks accumulate, and a
  // counter of which they draw tickets.
  TUTTI_TRY(Window window, Window::create(comm_, me_ == root_.value ? counter_ + 8 : bytes_));
  Status used = use(window);
  if (!used) stopped_at_ = world->now;
  return used;
}

Status WindowUse::use(Window& window) {
  for (int round = 0; round < call_.times; ++round, ++number_) {
    for (std::size_t i = 0; i < call_.count; ++i)
      put(own_.data(), call_.type, i, value_of(number_, me_, i));
    TUTTI_RETURN_IF_ERROR(give(window));
    TUTTI_RETURN_IF_ERROR(draw(window, round));
    TUTTI_RETURN_IF_ERROR(read(window));
    TUTTI_RETURN_IF_ERROR(meet(window));
  }
  pause();
  return window.close();
}

Status WindowUse::give(Window& window) {
  pause();
  TUTTI_RETURN_IF_ERROR(window.put(own_.data(), bytes_, next_, 0));
  pause();
  TUTTI_RETURN_IF_ERROR(window.signal(next_, kPut));
  pause();
  TUTTI_RETURN_IF_ERROR(
      window.accumulate(own_.data(), call_.count, call_.type, call_.op, root_, bytes_));
  return call_.started ? window.flush(root_) : ok();
}

/// All have drawn those of the rounds before.
Status WindowUse::draw(Window& window, int round) {
  TUTTI_TRY(const std::int64_t ticket, window.fetch_add(1, root_, counter_));
  right_ = right_ && ticket >= round * ranks_ && ticket < (round + 1) * ranks_;
  return ok();
}

Status WindowUse::read(Window& window) {
  TUTTI_RETURN_IF_ERROR(window.wait_signal(previous_, kPut));
  expect(window.data(), [this](std::size_t i) { return value_of(number_, previous_.value, i); });
  pause();
  TUTTI_RETURN_IF_ERROR(window.get(got_.data(), bytes_, next_, 0));
  expect(got_.data(), [this](std::size_t i) { return value_of(number_, me_, i); });
  return ok();
}

/// The root hears of all others, and then they of it.
Status WindowUse::meet(Window& window) {
  TUTTI_RETURN_IF_ERROR(window.signal(root_, kDone));
  if (me_ == root_.value) {
    for (int rank = 0; rank < ranks_; ++rank)
      TUTTI_RETURN_IF_ERROR(window.wait_signal(Rank{rank}, kDone));
    // On zeros, which are less than any element.
    expect(window.data() + bytes_, [this](std::size_t i) {
      return call_.op == ReduceOp::kMin ? 0 : reduced(call_, number_, ranks_, i);
    });
    if (bytes_ != 0) std::memset(window.data() + bytes_, 0, bytes_);
    pause();
    for (int rank = 0; rank < ranks_; ++rank)
      TUTTI_RETURN_IF_ERROR(window.signal(Rank{rank}, kSeen));
  }
  return window.wait_signal(root_, kSeen);
}

}  // namespace tutti::virt
