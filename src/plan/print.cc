#include <fmt/format.h>

#include "plan/names.h"
#include "plan/text.h"

namespace tutti::plan {

std::string to_text(const Location& location, bool is_source) {
  const char* slot = is_source ? "from" : "to";
  switch (location.place) {
    case Place::kInput: return fmt::format("input[{}]", location.chunk);
    case Place::kOutput: return fmt::format("output[{}]", location.chunk);
    case Place::kScratch:
      return fmt::format("scratch[{}]:{}", location.chunk, to_string(location.form));
    case Place::kSlot:
      return fmt::format("{}({}):{}", slot, location.peer, to_string(location.form));
    case Place::kMulticast:
      return is_source ? fmt::format("multicast({}):{}", location.peer, to_string(location.form))
                       : fmt::format("multicast:{}", to_string(location.form));
    case Place::kPeerInput: return fmt::format("input({})[{}]", location.peer, location.chunk);
    case Place::kPeerOutput: return fmt::format("output({})[{}]", location.peer, location.chunk);
  }
  return "unknown place";
}

}  // namespace tutti::plan
