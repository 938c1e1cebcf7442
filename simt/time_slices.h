// File: simt/time_slices.h: kernels of several processes that share a device run in turns.
//
// Without MPS, a device runs the kernels of one process at a time: when processes share it, their
// scheduling resources are swapped on and off (https://docs.nvidia.com/deploy/mps, "Reduced GPU
// context switching"). A slice ends before the kernels do: these are preempted, and go on in the
// next one. So a kernel that waits for one of another process makes progress, but sees its answer
// no sooner than in its next slice.
//
// Here processes of one session (setsid) share their devices, if Settings::time_slice_s is not 0. A
// process has a device while it holds a lock on a byte of a file, which the system gives back when
// the process ends. Another byte is held by the process that is next.
#pragma once
#include <condition_variable>
#include <mutex>

namespace tutti::simt {

/// This process' kernels on a device. Any thread.
class TimeSlices {
 public:
  /// Null: kernels of several processes run at the same time.
  static TimeSlices* of(int device);
  explicit TimeSlices(int device);

  /// While it lives, the device has a kernel of this process.
  class Kernel {
   public:
    explicit Kernel(TimeSlices* slices);
    ~Kernel();
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

   private:
    TimeSlices* slices_;
  };
  /// While it lives, some of a block's code runs. Waits for this process' slice.
  class Running {
   public:
    explicit Running(TimeSlices* slices);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    TimeSlices* slices_;
  };

 private:
  void take_turns();

  int device_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable changed_;
  int kernels_ = 0, running_ = 0;
  bool mine_ = false;  // It is this process' slice.
};

}  // namespace tutti::simt
