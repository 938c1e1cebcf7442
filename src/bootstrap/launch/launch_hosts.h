// File: bootstrap/launch/launch_hosts.h: which hosts get which ranks (`tutti run --hosts`). Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::bootstrap {

struct HostSlots {
  std::string host;
  int slots = 1;  // Ranks that it takes.
};

inline constexpr std::size_t kMostHosts = 4096;
inline constexpr int kMostSlots = 4096;

/// "a,b:2,[fd77::1]:4": names or addresses, each with the number of its slots. A host that is named
/// again gets more slots. kInvalidArgument: says what is wrong with which item.
Result<std::vector<HostSlots>> parse_hosts(std::string_view text);

/// The hosts in order, each filled before the next, until there are `rank_count` ranks; 0: as many
/// as there are slots. Those without a rank are left out. kInvalidArgument: there are fewer slots.
Result<std::vector<HostSlots>> share_out(const std::vector<HostSlots>& hosts, int rank_count);

}  // namespace tutti::bootstrap
