// File: tools/run/line_relay.h: whole lines from many streams into one.
#pragma once
#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

namespace tutti::tools {

/// Cuts one stream into lines.
class LineCutter {
 public:
  /// A longer line is broken: a stream without line ends must not fill the memory.
  static constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;

  /// Calls `take` for each line that is complete now, without its end.
  template <class Take>
  void append(std::string_view bytes, const Take& take) {
    while (!bytes.empty()) {
      const auto end = bytes.find('\n');
      const auto part = bytes.substr(0, end);
      if (end == std::string_view::npos) {
        rest_ += part;
        if (rest_.size() > kMostLineBytes) finish(take);
        return;
      }
      if (rest_.empty()) {
        take(part);
      } else {
        take(std::string_view(rest_ += part));
        rest_.clear();
      }
      bytes.remove_prefix(end + 1);
    }
  }
  /// The stream has ended: what is left is a line.
  template <class Take>
  void finish(const Take& take) {
    if (!rest_.empty()) take(std::string_view(rest_));
    rest_.clear();
  }

 private:
  std::string rest_;
};

/// Output that waits for one descriptor, written by a thread that must never block.
class Outlet {
 public:
  /// Above this, no more is read from the streams that lead here.
  static constexpr std::size_t kFullBytes = std::size_t{1} << 20;

  explicit Outlet(int descriptor) : descriptor_(descriptor) {}
  int descriptor() const { return descriptor_; }
  std::string& queue() { return queue_; }
  bool empty() const { return queue_.size() == written_; }
  bool full() const { return queue_.size() - written_ > kFullBytes; }
  /// Writes what can be written without blocking. Call it once poll has found room. False: a write
  /// has failed.
  bool write_some() {
    // A pipe that is ready takes this much in one piece without blocking; the descriptor itself has
    // to stay as it is, because others share it.
    const std::size_t count = std::min<std::size_t>(queue_.size() - written_, PIPE_BUF);
    const ssize_t written = failure_ != 0 ? static_cast<ssize_t>(count)
                                          : ::write(descriptor_, queue_.data() + written_, count);
    if (written < 0 && errno != EAGAIN && errno != EINTR) failure_ = errno;
    if (written > 0) written_ += static_cast<std::size_t>(written);
    if (failure_ != 0 || empty()) {
      queue_.clear();
      written_ = 0;
    } else if (written_ > kFullBytes) {
      queue_.erase(0, written_);
      written_ = 0;
    }
    return failure_ == 0;
  }
  /// The errno of the write that failed; 0: none has. The relay drops all output after it.
  int failure() const { return failure_; }

 private:
  int descriptor_;
  std::string queue_;
  std::size_t written_ = 0;
  int failure_ = 0;
};

}  // namespace tutti::tools
