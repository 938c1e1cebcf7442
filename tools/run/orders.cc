#include "tools/run/orders.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "tutti/tutti.h"

namespace tutti::tools {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Job, program, rank_count, first_rank, local_rank_count,
                                   rendezvous, name, secret, master_address, master_port, prefix)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AgentOrders, directory, environment, grace_seconds, job)

namespace {

using nlohmann::json;

Error invalid_orders(const char* why) { return {Code::kInvalidArgument, why}; }

/// Whether an int can have that value: a conversion would take another one silently.
bool is_int(const json& value) {
  if (value.is_number_unsigned()) return std::in_range<int>(value.get<std::uint64_t>());
  return value.is_number_integer() && std::in_range<int>(value.get<std::int64_t>());
}

bool has_ints(const json& job) {
  constexpr const char* kInts[] = {"rank_count", "first_rank", "local_rank_count", "master_port"};
  return std::ranges::all_of(kInts, [&](const char* key) { return is_int(job.at(key)); });
}

}  // namespace

std::string encode(const AgentOrders& orders) {
  json object = orders;
  object["version"] = TUTTI_VERSION;
  // An environment need not be UTF-8, JSON has to be: what is not, is lost.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<AgentOrders> parse_orders(std::string_view line) {
  AgentOrders orders;
  try {
    const json object = json::parse(line);
    const std::string version = object.at("version");
    if (version != TUTTI_VERSION) {
      return Error{Code::kMismatch, "the launcher has Tutti " + version + ", this host " +
                                        TUTTI_VERSION + "; install the same on all hosts"};
    }
    if (!has_ints(object.at("job")))
      return invalid_orders("a job whose rank counts or port are no integers of 32 bits");
    object.get_to(orders);
  } catch (const json::exception&) {
    return invalid_orders("what came is no job; it is for tutti run --hosts to start an agent");
  }
  const Job& job = orders.job;
  if (job.program.empty() || job.local_rank_count < 1 || job.local_rank_count > job.rank_count ||
      job.first_rank < 0 || job.first_rank > job.rank_count - job.local_rank_count ||
      job.rank_count > kMostJobRanks)
    return invalid_orders("a job with impossible ranks, or without a program");
  if (!(orders.grace_seconds >= 0 && orders.grace_seconds <= kLongestGraceSeconds))
    return invalid_orders("a job with an impossible time between SIGTERM and SIGKILL");
  return orders;
}

}  // namespace tutti::tools
