#include "devices/device_work.h"

#include <algorithm>
#include <thread>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "errors.h"

namespace tutti::python {
namespace {

/// How often the host looks while it waits for a stream with a time limit.
constexpr std::chrono::microseconds kLook{50};

}  // namespace

std::shared_ptr<const DeviceComm> DeviceLink::comm() {
  const std::lock_guard lock(mutex_);
  return comm_;
}

Status DeviceLink::last() {
  const std::lock_guard lock(mutex_);
  return last_;
}

Status DeviceLink::check() {
  const auto comm = this->comm();
  return comm ? comm->check() : last();
}

void DeviceLink::abort(const std::string& reason) {
  if (const auto comm = this->comm()) comm->abort(reason);
}

void DeviceLink::close() {
  const std::lock_guard calling(calling_);  // Waits for a call that is being made.
  std::shared_ptr<const DeviceComm> gone;
  decltype(kept_) kept;
  const std::lock_guard lock(mutex_);
  if (!comm_) return;
  if (const Status status = comm_->check(); !status) last_ = status.error();
  gone.swap(comm_);
  kept.swap(kept_);
}

std::uint64_t DeviceLink::keep(std::vector<at::Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  kept_.emplace_back(++kept_number_, std::move(tensors));
  return kept_number_;
}

void DeviceLink::let_go(std::uint64_t number) {
  decltype(kept_) gone;
  const std::lock_guard lock(mutex_);
  const auto later = std::find_if(kept_.begin(), kept_.end(),
                                  [number](const auto& one) { return one.first > number; });
  gone.splice(gone.end(), kept_, kept_.begin(), later);
}

std::optional<bool> DeviceEnd::come() const {
  if (kept) return std::nullopt;  // A query would fail, and might invalidate the capture.
  std::optional<bool> come;
  DeviceComm::relaxed([&] {
    try {
      come = event->query();
    } catch (const std::exception&) {  // The device has failed; its link reports that.
    }
  });
  return come;
}

bool DeviceWork::isCompleted() {
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const DeviceEnd& end) { return end.come().value_or(false); });
}

bool DeviceWork::busy() const {
  return std::any_of(ends_.begin(), ends_.end(),
                     [](const DeviceEnd& end) { return !end.come().value_or(true); });
}

std::exception_ptr DeviceWork::exception() const {
  for (const DeviceEnd& end : ends_) {
    if (const Status status = end.link->check(); !status)
      return exception_of(what_.text, status.error());
  }
  return nullptr;
}

bool DeviceWork::wait(std::chrono::milliseconds timeout) {
  if (timeout > kNoTimeout) {
    const auto end = std::chrono::steady_clock::now() + bounded(timeout);
    while (busy()) {
      if (std::chrono::steady_clock::now() >= end)
        raise(what_.text, {Code::kTimeout,
                           "waited " + std::to_string(timeout.count()) +
                               " ms; it goes on, and can be waited for again",
                           Rank{what_.rank}});
      std::this_thread::sleep_for(kLook);
    }
  }
  if (auto failure = exception(); failure != nullptr) std::rethrow_exception(failure);
  synchronize();
  return true;
}

void DeviceWork::synchronize() {
  for (const DeviceEnd& end : ends_) {
    const c10::impl::VirtualGuardImpl device(end.link->stream().device_type());
    end.event->block(device.getStream(end.link->stream().device()));
    if (end.kept) end.link->let_go(*end.kept);
  }
  let_go();  // Their memory is used again only on a stream that waits.
  c10d::Work::synchronize();
}

c10::intrusive_ptr<c10::ivalue::Future> DeviceWork::getFuture() {
  const std::lock_guard lock(own_mutex_);
  if (future_) return future_;
  std::vector<c10::Device> devices;
  std::vector<c10::Stream> streams;  // One for each device, which waits for all that is on it.
  for (const DeviceEnd& end : ends_) {
    const c10::Device device = end.link->stream().device();
    auto at = std::find(devices.begin(), devices.end(), device);
    if (at == devices.end()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      streams.push_back(guard.getStreamFromGlobalPool(device));
      at = devices.insert(at, device);
    }
    end.event->block(streams[static_cast<std::size_t>(at - devices.begin())]);
  }
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), devices);
  if (auto failure = exception(); failure != nullptr) {
    future->setError(failure);
  } else {
    const c10::MultiStreamGuard guard(streams);
    future->markCompleted(c10::IValue(outputs_));
  }
  future_ = std::move(future);
  return future_;
}

void DeviceWork::abort() {
  for (const DeviceEnd& end : ends_) end.link->abort(what_.text + " was aborted");
}

void DeviceWork::keep(std::vector<at::Tensor> tensors) {
  const std::lock_guard lock(own_mutex_);
  kept_ = std::move(tensors);
}

void DeviceWork::let_go() {
  std::vector<at::Tensor> gone;
  const std::lock_guard lock(own_mutex_);
  gone.swap(kept_);
}

}  // namespace tutti::python
