// File: plan/estimate.h: how long a plan would take, by simulating its events over link costs.
#pragma once
#include <cstddef>
#include <functional>

#include "base/link_cost.h"
#include "plan/plan.h"
#include "tutti/types.h"

namespace tutti::plan {

/// What the estimator needs to know of the machine.
struct CostModel {
  std::function<LinkCost(Rank from, Rank to)>
      link;  // A slot (or a mapped access) from one rank to another.
  /// GB/s, each way, that all links of a rank have together (its NIC). Without it, or where it is
  /// 0, links don't get in each other's way.
  std::function<double(Rank)> port = {};
  double reduce_gigabytes_per_second = 20;  // Per rank, bytes read and written by a move.
  double step_us = 0.02;                    // Per step.
};

struct Estimate {
  double microseconds = 0;           // Until the last rank is done.
  double bytes_on_busiest_link = 0;  // Sent over the rank-to-rank link that carries most.
  std::size_t messages_on_critical_path = 0;
};

/// Simulates `plan` for a message of `count` elements (per block) of `type`, tiles of `slot_bytes`,
/// and `slots` slots per channel. The plan has to be verified. Pure; any thread.
Estimate estimate(const Plan& plan, std::size_t count, DataType type, std::size_t slot_bytes,
                  int slots, const CostModel& model);

}  // namespace tutti::plan
