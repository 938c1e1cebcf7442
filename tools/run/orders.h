// File: tools/run/orders.h: what an agent has to know of a job, as the line that it reads first.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/spawn.h"
#include "tutti/result.h"

namespace tutti::tools {

inline constexpr std::size_t kMostOrdersBytes = std::size_t{1} << 20;
inline constexpr int kMostJobRanks = 1 << 16;
inline constexpr double kLongestGraceSeconds = 1e6;

struct AgentOrders {
  std::string directory;
  std::vector<std::string> environment;  // "NAME=value".
  double grace_seconds = 5.0;
  Job job;
};

/// A line of JSON, without its end. What is not UTF-8 is lost.
std::string encode(const AgentOrders& orders);
/// The reverse. kMismatch: another version; kInvalidArgument: no orders, or impossible ones. Any
/// bytes are allowed.
Result<AgentOrders> parse_orders(std::string_view line);

}  // namespace tutti::tools
