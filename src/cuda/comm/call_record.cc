#include "cuda/comm/call_record.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "exec/flight/dump.h"

namespace tutti {
namespace {

using exec::flight::At;
using exec::flight::Outcome;

// How long `completed` waits for calls that have failed.
constexpr std::chrono::milliseconds kPatience{500}, kBetweenLooks{1};
// The thread that calls may write half of the ring while a thread looks.
constexpr std::uint64_t kKept = exec::flight::kEntries / 2;

// For so many looks, a second, a rank is shown for which a kernel has waited: it says so again
// after a fraction of that, if it still waits, but may be slow on a device that others use.
constexpr int kKeptLooks = 10;

/// What a call moves at one rank, as totals count it.
std::uint64_t bytes_of(const Request& request, int ranks) {
  const CollectiveTraits traits = traits_of(request.collective);
  const bool each = traits.input_each || traits.output_each;
  return request.count * size_of(request.type) * (each ? static_cast<std::uint64_t>(ranks) : 1);
}

bool is_collective(std::uint64_t what) { return what != 0 && (what & exec::flight::kMessage) == 0; }

}  // namespace

Status DeviceCallRecord::make() {
  exec::flight::About about = rank_.host().flight;
  about.communicator[1] = ~about.communicator[1];  // The control communicator has the other name.
  about.devices = false;
  about.transport = "devices";
  recorder_.emplace(about);
  return mark_.make();
}

cuda::LaunchMark DeviceCallRecord::begin(const Request& request, std::string_view name,
                                         bool by_copies) {
  if (order_.capturing()) return unrecorded();
  const cuda::LaunchMark mark{++entries_, calls_++, false};
  const int root = has_root(request.collective) ? request.root.value : 0;
  recorder_->begin_run(calls_, static_cast<std::size_t>(request.collective),
                       bytes_of(request, rank_.rank_count), false);
  recorder_->begin(calls_, exec::pack(request.collective, request.type, request.reduction.op, root),
                   request.count, false);
  recorder_->set_plan(reinterpret_cast<std::uintptr_t>(name.data()), name);
  recorder_->set_state(entries_, {0, At::kLaunched, -1, 0});
  // relaxed: see the declaration.
  if (by_copies) by_copies_.store(true, std::memory_order_relaxed);
  return mark;
}

cuda::LaunchMark DeviceCallRecord::begin_message(bool sends, int peer, DataType type,
                                                 std::size_t count) {
  if (order_.capturing()) return unrecorded();
  entries_ = recorder_->begin_message(sends, peer, static_cast<std::uint8_t>(type), count);
  recorder_->set_state(entries_, {0, At::kLaunched, -1, 0});
  return {entries_, calls_, false};
}

Status DeviceCallRecord::launched(cudaStream_t stream) {
  // relaxed: only this thread writes it. The same: what was launched is not recorded.
  if (order_.capturing() || launched_.load(std::memory_order_relaxed) == entries_) return ok();
  // acquire: pairs with the watcher's release in ask_cuda.
  if (mark_wanted_.load(std::memory_order_acquire)) {
    TUTTI_RETURN_IF_ERROR(mark_.record(stream));
    marked_ = entries_;
    // release: the watcher that sees it sees the record and the number.
    mark_wanted_.store(false, std::memory_order_release);
  }
  // relaxed, both, and release: see the declaration.
  launched_orders_.store(order_.calls(), std::memory_order_relaxed);
  launched_calls_.store(calls_, std::memory_order_relaxed);
  launched_.store(entries_, std::memory_order_release);
  return ok();
}

void DeviceCallRecord::end_until(std::uint64_t entry, std::uint64_t now) {
  over_ = std::max(over_, entry > kKept ? entry - kKept : 0);
  while (over_ < entry) {
    ++over_;
    State state{static_cast<std::uint8_t>(Outcome::kOk), At::kLaunched, -1, 0};
    if (over_ == shown_.entry) state.at = shown_.at, state.awaited = shown_.awaited;
    recorder_->set_device_state(over_, state, over_ >= not_over_.entry ? not_over_.at : 0, now);
  }
  if (const std::uint64_t call = recorder_->call_at(over_); call != 0) over_calls_ = call;
}

/// Where messages share a launch, the one with that peer; it begins with the entry that the kernel
/// names.
std::uint64_t DeviceCallRecord::entry_of_wait(const exec::CudaRings::LongWait& wait,
                                              std::uint64_t launched) const {
  for (std::uint64_t entry = wait.entry; entry <= launched; ++entry) {
    const std::uint64_t what = recorder_->what_of(entry);
    if (is_collective(what)) break;
    if (static_cast<std::uint16_t>(what) == wait.peer) return entry;
  }
  return wait.entry;
}

/// Whether the event that orders calls was that of entry `launched` until now.
bool DeviceCallRecord::is_latest(std::uint64_t launched) const {
  // relaxed, first: a call is counted before its event is recorded, and CUDA was asked before this.
  return order_.calls() == launched_orders_.load(std::memory_order_relaxed) &&
         launched_.load(std::memory_order_relaxed) == launched && !order_.captured();
}

void DeviceCallRecord::ask_cuda(std::uint64_t launched, std::uint64_t now) {
  if (order_.done()) return end_until(launched, now);
  if (is_latest(launched)) not_over_ = {launched, now};
  // acquire: pairs with the release in launched.
  if (mark_wanted_.load(std::memory_order_acquire)) return;
  if (marked_ > over_) {
    if (mark_.done()) {
      end_until(marked_, now);
    } else {
      not_over_ = {marked_, now};
    }
  }
  // release: the thread that calls sees that the number was read.
  if (marked_ <= over_) mark_wanted_.store(true, std::memory_order_release);
}

/// What the first entry that is not known to be over is at.
void DeviceCallRecord::show_first(std::uint64_t entry, At at, int awaited, std::uint64_t now) {
  const bool same = shown_.entry == entry;
  if (same && shown_.at == At::kBegun) at = At::kBegun;
  if (!same || shown_.at != at) shown_.since = now;
  shown_.looks = awaited >= 0 ? 0 : shown_.looks + 1;
  if (same && awaited < 0 && shown_.looks < kKeptLooks) awaited = shown_.awaited;
  if (!same || awaited >= 0) shown_.awaited = awaited;
  shown_.entry = entry;
  shown_.at = at;
  recorder_->set_device_state(shown_.entry, {0, at, awaited, 0}, shown_.since, now);
}

void DeviceCallRecord::look(bool ask, int awaited) {
  const std::lock_guard lock(mutex_);
  // acquire: pairs with the release in launched.
  const std::uint64_t launched = launched_.load(std::memory_order_acquire);
  if (failed_ || launched == over_) return;
  const std::uint64_t now = ticks(), before = std::exchange(looked_, now);
  auto wait = rings().take_wait(rank_.me.value);
  // It began before `launched` was looked up, or after: then it will say so again.
  if (wait.entry > launched) wait = {};
  if (wait.entry > over_) {
    end_until(wait.entry - 1, now);
    not_over_ = {wait.entry, before};  // It has waited at some time since that look.
  }
  if (ask) ask_cuda(launched, now);
  if (over_ >= launched) return;
  if (wait.entry == over_ + 1)
    return show_first(entry_of_wait(wait, launched), At::kBegun, wait.peer, now);
  show_first(std::max(shown_.entry, over_ + 1), At::kOnDevice, awaited, now);
}

void DeviceCallRecord::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(failed_, true)) return;
  // acquire: as in look.
  const std::uint64_t launched = launched_.load(std::memory_order_acquire), now = ticks();
  const auto wait = rings().take_wait(rank_.me.value);
  if (wait.entry > over_ && wait.entry <= launched) end_until(wait.entry - 1, now);
  const auto outcome =
      static_cast<std::uint8_t>(static_cast<int>(Outcome::kFailed) + static_cast<int>(error.code));
  std::uint64_t entry = std::max(over_, launched > kKept ? launched - kKept : 0) + 1;
  const int peer = error.peer == rank_.me ? -1 : error.peer.value;
  const At at = entry == wait.entry     ? At::kBegun
                : entry == shown_.entry ? shown_.at
                                        : At::kOnDevice;
  const auto end = [&](const State& state) {
    recorder_->set_device_state(entry, state, entry >= not_over_.entry ? not_over_.at : 0, now);
  };
  if (entry <= launched) end({outcome, at, peer, 0});
  while (++entry <= launched) end({outcome, At::kLaunched, -1, 0});
  exec::flight::write_record(*recorder_, rank_.host().executor->endpoint().region());
}

std::uint64_t DeviceCallRecord::completed() {
  // acquire: as in look.
  const std::uint64_t launched = launched_.load(std::memory_order_acquire);
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    failed = failed_;
  }
  bool done = order_.done();
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (failed && !done && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenLooks);
    done = order_.done();
  }
  const std::lock_guard lock(mutex_);
  if (!failed_ && done) end_until(launched, ticks());
  // relaxed: no thread calls.
  const std::uint64_t calls = launched_calls_.load(std::memory_order_relaxed);
  const std::uint64_t ended = rings().ended(rank_.me.value);
  if (!failed_) return done ? calls : over_calls_;
  if (ended != 0 && ended != cuda::kEndedSomewhere) return std::min(ended - 1, calls);
  // Kernels that have failed say so. Copies behind a wait that was ended early do not.
  const bool all = ended == 0 && done && !by_copies_.load(std::memory_order_relaxed);
  return all ? calls : over_calls_;
}

}  // namespace tutti
