// Communicators of the same ranks, and which rank is which.
#include <algorithm>

#include "comm/state.h"

namespace tutti {

Result<Communicator> Communicator::duplicate() {
  auto made = split(0, 0);
  if (!made && made.error().what.starts_with("split: "))
    made.error().what.replace(0, std::string_view("split").size(), "duplicate");
  return made;
}

Result<std::vector<Rank>> Communicator::ranks_in(const Communicator& other) const {
  TUTTI_RETURN_IF_ERROR(usable("ranks_in"));
  TUTTI_RETURN_IF_ERROR(other.usable("ranks_in"));
  return walled("ranks_in", [&]() -> Result<std::vector<Rank>> {
    // Sorted, as a search for each rank would take the square of their number.
    std::vector<std::pair<State::Identity, int>> there;
    for (const State::Identity& one : other.state_->identities)
      there.emplace_back(one, static_cast<int>(there.size()));
    std::ranges::sort(there);
    std::vector<Rank> ranks;
    for (const State::Identity& one : state_->identities) {
      const auto found = std::ranges::lower_bound(there, std::pair{one, 0});
      const bool is_there = found != there.end() && found->first == one;
      ranks.push_back(Rank{is_there ? found->second : -1});
    }
    return ranks;
  });
}

}  // namespace tutti
