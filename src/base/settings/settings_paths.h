// File: base/settings/settings_paths.h: where files are that a user has once for all programs.
#pragma once
#include <string>

namespace tutti {

/// Where `tutti tune` keeps its tables: tutti/tuning.json in $XDG_CACHE_HOME or ~/.cache (as the
/// XDG Base Directory Specification says). Empty where neither is known.
std::string default_tuning_file();

}  // namespace tutti
