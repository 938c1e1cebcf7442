// File: tools/run/line_relay.h: whole lines from many streams into one.
#pragma once
#include <string>
#include <string_view>

namespace tutti::tools {

/// Cuts one stream into lines, and puts a prefix before each.
class LineCutter {
 public:
  /// A longer line is broken: a stream without line ends must not fill the memory.
  static constexpr std::size_t kMostLineBytes = std::size_t{1} << 20;

  explicit LineCutter(std::string prefix) : prefix_(std::move(prefix)) {}
  /// Adds the lines that are complete now to `out`.
  void append(std::string_view bytes, std::string& out);
  /// The stream has ended: adds what is left, as a line.
  void finish(std::string& out);

 private:
  std::string prefix_, rest_;
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
  bool write_some();
  /// The errno of the write that failed; 0: none has. The relay drops all output after it.
  int failure() const { return failure_; }

 private:
  int descriptor_;
  std::string queue_;
  std::size_t written_ = 0;
  int failure_ = 0;
};

}  // namespace tutti::tools
