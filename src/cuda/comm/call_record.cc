#include "cuda/comm/call_record.h"

#include <algorithm>

#include "exec/flight/dump.h"

namespace tutti {
namespace {

using exec::flight::At;
using exec::flight::Outcome;

/// What a call moves at one rank, as totals count it.
std::uint64_t bytes_of(const Request& request, int ranks) {
  const CollectiveTraits traits = traits_of(request.collective);
  const bool each = traits.input_each || traits.output_each;
  return request.count * size_of(request.type) * (each ? static_cast<std::uint64_t>(ranks) : 1);
}

}  // namespace

Status DeviceCallRecord::make() {
  exec::flight::About about = rank_.host().flight;
  about.communicator[1] = ~about.communicator[1];  // The control communicator has the other name.
  about.devices = false;
  about.transport = "devices";
  recorder_.emplace(about);
  return mark_.make();
}

void DeviceCallRecord::begin(const Request& request, std::string_view name) {
  if (order_.capturing()) return;
  const int root = has_root(request.collective) ? request.root.value : 0;
  ++calls_;
  ++entries_;
  recorder_->begin_run(calls_, static_cast<std::size_t>(request.collective),
                       bytes_of(request, rank_.rank_count), false);
  recorder_->begin(calls_, exec::pack(request.collective, request.type, request.reduction.op, root),
                   request.count, false);
  recorder_->set_plan(reinterpret_cast<std::uintptr_t>(name.data()), name);
  recorder_->set_state(entries_, {0, At::kLaunched, -1, 0});
}

void DeviceCallRecord::begin_message(bool sends, int peer, DataType type, std::size_t count) {
  if (order_.capturing()) return;
  entries_ = recorder_->begin_message(sends, peer, static_cast<std::uint8_t>(type), count);
}

Status DeviceCallRecord::launched(cudaStream_t stream) {
  if (order_.capturing()) return ok();
  // acquire: pairs with the watcher's release in look.
  if (mark_wanted_.load(std::memory_order_acquire)) {
    TUTTI_RETURN_IF_ERROR(mark_.record(stream));
    marked_ = entries_;
    // release: the watcher that sees it sees the record and the number.
    mark_wanted_.store(false, std::memory_order_release);
  }
  // release: see the declaration.
  launched_.store(entries_, std::memory_order_release);
  return ok();
}

void DeviceCallRecord::set(std::uint64_t entry, At at, Outcome outcome) {
  recorder_->set_state(entry, {static_cast<std::uint8_t>(outcome), at, -1, 0});
}

void DeviceCallRecord::end_until(std::uint64_t entry) {
  // The thread that calls may write half of the ring meanwhile.
  const std::uint64_t kept = exec::flight::kEntries / 2;
  over_ = std::max(over_, entry > kept ? entry - kept : 0);
  for (; over_ < entry; ++over_) set(over_ + 1, At::kOnDevice, Outcome::kOk);
}

void DeviceCallRecord::look() {
  const std::lock_guard lock(mutex_);
  // acquire: pairs with the release in launched.
  const std::uint64_t launched = launched_.load(std::memory_order_acquire);
  if (failed_ || launched == over_) return;
  if (order_.done()) return end_until(launched);
  // acquire: as in launched.
  if (!mark_wanted_.load(std::memory_order_acquire)) {
    if (marked_ != 0 && mark_.done()) end_until(marked_);
    // release: the thread that calls sees that the number was read.
    if (marked_ <= over_) mark_wanted_.store(true, std::memory_order_release);
  }
  if (over_ < launched) set(over_ + 1, At::kOnDevice, Outcome::kRunning);
}

void DeviceCallRecord::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(failed_, true)) return;
  // acquire: as in look.
  const std::uint64_t launched = launched_.load(std::memory_order_acquire);
  const auto outcome =
      static_cast<std::uint8_t>(static_cast<int>(Outcome::kFailed) + static_cast<int>(error.code));
  const std::uint64_t kept = exec::flight::kEntries / 2;
  std::uint64_t entry = std::max(over_, launched > kept ? launched - kept : 0) + 1;
  const int peer = error.peer == rank_.me ? -1 : error.peer.value;
  if (entry <= launched) recorder_->set_state(entry, {outcome, At::kOnDevice, peer, 0});
  while (++entry <= launched) recorder_->set_state(entry, {outcome, At::kLaunched, -1, 0});
  exec::flight::write_record(*recorder_, rank_.host().executor->endpoint().region());
}

}  // namespace tutti
