// File: base/link_cost.h: what one hop costs. Transports report it, the planner spends it.
#pragma once

namespace tutti {

struct LinkCost {
  double latency_us = 0;
  double gigabytes_per_second = 0;
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

/// Between two hosts. All ranks of a host share its rate, and its messages go one after the other.
struct NetworkCost {
  LinkCost link;
  double message_us = 0;  // That each message takes of the host that sends it, whatever its bytes.
  friend bool operator==(const NetworkCost&, const NetworkCost&) = default;
};

}  // namespace tutti
