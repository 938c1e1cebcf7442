// File: plan/text/lanes.h: in which order the lanes of a plan pass the ranks, for people.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.h"

namespace tutti::plan {

/// Where one rank of a plan runs.
struct LanePlace {
  int me = 0;
  std::span<const int> hosts{};  // By rank; empty: all ranks are on one host.
  std::string_view nics{};       // By which it reaches other hosts: "mlx5_0:1 and mlx5_4:1".
};

/// The ranks in the order in which data pass them, if a lane is one ring (from rank 0 on) or one
/// chain (from its start on); else empty.
std::vector<int> order_of(const Plan& plan, std::size_t lane);

/// "lanes 0-7: 0 1 2 3, to other hosts by mlx5_0:1": a line of at most 100 columns, or several, for
/// each group of alike lanes. A lane in another shape is told by the peers that a rank has.
std::string lanes_in_words(const Plan& plan, const LanePlace& place, std::string_view indent);

}  // namespace tutti::plan
