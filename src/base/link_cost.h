// File: base/link_cost.h: what one hop costs. Transports report it, the planner spends it.
#pragma once

namespace tutti {

struct LinkCost {
  double latency_us = 0;
  double gigabytes_per_second = 0;
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

}  // namespace tutti
