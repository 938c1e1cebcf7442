#include "base/settings/settings_paths.h"

#include <cstdlib>

namespace tutti {

std::string default_tuning_file() {
  // A relative path is to be ignored, says the specification.
  for (const auto& [variable, below] :
       {std::pair{"XDG_CACHE_HOME", ""}, std::pair{"HOME", "/.cache"}}) {
    const char* value = std::getenv(variable);
    if (value != nullptr && *value == '/') return std::string(value) + below + "/tutti/tuning.json";
  }
  return {};
}

}  // namespace tutti
