// File: planner/weights.h: how much of a message each rank should own where not all carry as much.
#pragma once
#include <vector>

#include "plan/estimate/estimate.h"
#include "planner/planner.h"

namespace tutti::planner {

/// Shares of a direct exchange (algorithms/weighted_all_reduce.cc), small whole numbers that keep
/// its busiest link less busy than even shares would, whichever links ranks share. None beyond
/// kMostShared ranks, where a pair has no way, or where 5 % can't be gained. Pure arithmetic in a
/// fixed order: alike on all ranks.
std::vector<int> shares_for(int ranks, const plan::CostModel& model);
inline constexpr int kMostShared = 128;

/// The same for ranks on hosts that carry `rates` each (Hosts::rates): by rank, those of a host
/// alike. None where `rates` is empty, or hosts do not all have as many ranks.
std::vector<int> weights_for(const Hosts& hosts);

}  // namespace tutti::planner
