#include "tools/run/line_relay.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace tutti::tools {

void LineCutter::append(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    const auto part = bytes.substr(0, end);
    if (end == std::string_view::npos) {
      rest_ += part;
      if (rest_.size() > kMostLineBytes) finish(out);
      return;
    }
    out.append(prefix_).append(rest_).append(part) += '\n';
    rest_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void LineCutter::finish(std::string& out) {
  if (!rest_.empty()) out.append(prefix_).append(rest_) += '\n';
  rest_.clear();
}

bool Outlet::write_some() {
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

}  // namespace tutti::tools
