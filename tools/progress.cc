#include "tools/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/output.h"

namespace tutti::tools {

void show_progress(std::size_t done, std::size_t all, std::string_view words) {
  if (isatty(STDERR_FILENO) == 0) return;
  const std::size_t filled = 30 * done / std::max<std::size_t>(1, all);
  say_error("\r[{:#<{}}{:.<{}}] {}\033[K", "", filled, "", 30 - filled, words);
}

void clear_progress() {
  if (isatty(STDERR_FILENO) != 0) say_error("\r\033[K");
}

}  // namespace tutti::tools
