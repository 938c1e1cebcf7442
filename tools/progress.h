// File: tools/progress.h: a line on a terminal that says how far something is.
#pragma once
#include <cstddef>
#include <string_view>

namespace tutti::tools {

/// "[#####.........] words" on stderr, over the last one. Nothing where that is no terminal.
void show_progress(std::size_t done, std::size_t all, std::string_view words);
/// Takes it away, before something else is printed.
void clear_progress();

}  // namespace tutti::tools
