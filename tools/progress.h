// File: tools/progress.h: a line on a terminal that says how far something is.
#pragma once
#include <unistd.h>

#include <algorithm>

#include "base/output.h"

namespace tutti::tools {

/// From now on SIGINT ends this process with a line of its own on this terminal, after the one that
/// says how far something is. Not the processes that it forks; and not where SIGINT is ignored or
/// handled. Twice is as once.
void end_line_on_interrupt(int terminal);

/// "[#####.........] words" on stderr, over the last one. Nothing where that is no terminal.
inline void show_progress(std::size_t done, std::size_t all, std::string_view words) {
  if (isatty(STDERR_FILENO) == 0) return;
  end_line_on_interrupt(STDERR_FILENO);
  const std::size_t filled = 30 * done / std::max<std::size_t>(1, all);
  say_error("\r[{:#<{}}{:.<{}}] {}\033[K", "", filled, "", 30 - filled, words);
}

/// Takes it away, before something else is printed.
inline void clear_progress() {
  if (isatty(STDERR_FILENO) != 0) say_error("\r\033[K");
}

}  // namespace tutti::tools
