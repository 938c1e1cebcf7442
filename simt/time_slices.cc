#include "simt/time_slices.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "simt/engine.h"

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;

constexpr int kMostDevices = 64;

/// The two bytes of a device.
enum class Byte { kNext, kSlice };

/// Takes the byte, after the process that has it, or gives it back.
void set_lock(short type, int device, Byte byte) {
  static const int file = [] {
    const std::string name = "/tmp/simt-time-slices-" + std::to_string(getuid());
    const int opened = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (opened < 0) die("time slices take a file, and %s can't be opened", name.c_str());
    return opened;
  }();
  struct flock range = {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = (off_t{getsid(0)} * kMostDevices + device) * 2 + static_cast<int>(byte);
  range.l_len = 1;
  while (fcntl(file, F_OFD_SETLKW, &range) != 0 && errno == EINTR) continue;
}

std::string text_of(double seconds) { return std::to_string(seconds * 1e3) + " ms"; }

}  // namespace

TimeSlices* TimeSlices::of(int device) {
  if (settings().time_slice_s <= 0) return nullptr;
  static std::mutex mutex;
  static TimeSlices* all[kMostDevices] = {};
  const Lock lock(mutex);
  if (all[device] == nullptr) all[device] = new TimeSlices(device);
  return all[device];
}

TimeSlices::TimeSlices(int device) : device_(device) {
  std::thread([this] { take_turns(); }).detach();
}

void TimeSlices::take_turns() {
  const std::string device = "device " + std::to_string(device_);
  for (;;) {
    {
      Lock lock(mutex_);
      changed_.wait(lock, [this] { return kernels_ > 0; });
    }
    {
      const Waiting waiting(device + ": this process waits for its time slice");
      set_lock(F_WRLCK, device_, Byte::kNext);
      set_lock(F_WRLCK, device_, Byte::kSlice);
      set_lock(F_UNLCK, device_, Byte::kNext);
    }
    {
      const double slice_s = settings().time_slice_s;
      const Waiting waiting(device + ": kernels of other processes run after the time slice of " +
                            text_of(slice_s) + " of this one (SIMT_TIME_SLICE)");
      Lock lock(mutex_);
      mine_ = true;
      changed_.notify_all();
      changed_.wait_for(lock, std::chrono::duration<double>(slice_s),
                        [this] { return kernels_ == 0; });
      mine_ = false;
      changed_.wait(lock, [this] { return running_ == 0; });
    }
    set_lock(F_UNLCK, device_, Byte::kSlice);
  }
}

TimeSlices::Kernel::Kernel(TimeSlices* slices) : slices_(slices) {
  if (slices_ == nullptr) return;
  const Lock lock(slices_->mutex_);
  ++slices_->kernels_;
  slices_->changed_.notify_all();
}
TimeSlices::Kernel::~Kernel() {
  if (slices_ == nullptr) return;
  const Lock lock(slices_->mutex_);
  --slices_->kernels_;
  slices_->changed_.notify_all();
}

TimeSlices::Running::Running(TimeSlices* slices) : slices_(slices) {
  if (slices_ == nullptr) return;
  Lock lock(slices_->mutex_);
  slices_->changed_.wait(lock, [this] { return slices_->mine_; });
  ++slices_->running_;
}
TimeSlices::Running::~Running() {
  if (slices_ == nullptr) return;
  const Lock lock(slices_->mutex_);
  if (--slices_->running_ == 0 && !slices_->mine_) slices_->changed_.notify_all();
}

}  // namespace tutti::simt
