// File: planner/weights.h: how much of a message each rank should own where not all carry as much.
#pragma once
#include <span>
#include <vector>

#include "plan/estimate/estimate.h"
#include "planner/planner.h"

namespace tutti::planner {

/// Shares of a direct exchange (algorithms/weighted_all_reduce.cc) for ranks that need so long:
/// small whole numbers, or none where all ranks are (nearly) alike. Closed form: with
/// rates b, X = min(min b, sum b / 2(n-1)), rank r owns (b_r / X - 1) / (n - 2) of the message.
std::vector<int> weights_for(std::span<const double> us);

/// The same where ranks share links in any way: shares that keep the busiest link of a direct
/// exchange less busy than even ones would, by whole steps. None beyond kMostShared ranks, or where
/// 5 % can't be gained. Pure arithmetic in a fixed order: alike on all ranks.
std::vector<int> shares_for(int ranks, const plan::CostModel& model);
inline constexpr int kMostShared = 64;

/// The same for ranks on hosts that carry `rates` each (Hosts::rates): by rank, those of a host
/// alike. None where `rates` is empty, or hosts do not all have as many ranks.
std::vector<int> weights_for(const Hosts& hosts);

}  // namespace tutti::planner
