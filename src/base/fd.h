// File: base/fd.h: a file descriptor that closes itself.
#pragma once
#include <unistd.h>

#include <utility>

namespace tutti {

/// Owns at most one descriptor. Movable; -1 is "none". Not for descriptors that others also close.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int descriptor) : descriptor_(descriptor) {}
  Fd(Fd&& other) noexcept : descriptor_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  /// Gives the descriptor away.
  int release() { return std::exchange(descriptor_, -1); }
  void reset(int descriptor = -1) {
    const int old = std::exchange(descriptor_, descriptor);
    // The result is of no use: on Linux the descriptor is gone even if close reports an error.
    if (old >= 0) ::close(old);
  }

 private:
  int descriptor_ = -1;
};

}  // namespace tutti
