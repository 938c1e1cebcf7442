#include "tools/run/orders.h"

#include <utility>

#include "base/json.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

// What the orders consist of, under its names in the JSON: once for both ways.
template <class Codec, class Its>
void members_of_job(Codec& codec, Its& job) {
  codec("program", job.program);
  codec("rank_count", job.rank_count);
  codec("first_rank", job.first_rank);
  codec("local_rank_count", job.local_rank_count);
  codec("rendezvous", job.rendezvous);
  codec("name", job.name);
  codec("secret", job.secret);
  codec("master_address", job.master_address);
  codec("master_port", job.master_port);
  codec("prefix", job.prefix);
}
template <class Codec, class Its>
void members_of_orders(Codec& codec, Its& orders) {
  codec("directory", orders.directory);
  codec("environment", orders.environment);
  codec("grace_seconds", orders.grace_seconds);
}

struct ToJson {
  Json object;

  template <class Value>
  void operator()(const char* name, const Value& value) {
    object[name] = value;
  }
};

/// Not `whole` once a member was missing or of another kind.
struct FromJson {
  const Json& object;
  bool whole = true;

  void operator()(const char* name, std::string& text) {
    take(object[name], object[name].is_string(), text);
  }
  void operator()(const char* name, std::vector<std::string>& list) {
    whole = whole && object[name].is_array();
    for (const Json& one : object[name]) take(one, one.is_string(), list.emplace_back());
  }
  void operator()(const char* name, double& number) {
    take(object[name], object[name].is_number(), number);
  }
  void operator()(const char* name, bool& flag) {
    take(object[name], object[name].is_boolean(), flag);
  }
  /// Refuses what an int can't hold: a conversion would take another number silently.
  void operator()(const char* name, int& number) {
    const Json& value = object[name];
    take(value,
         value.is_number_unsigned()
             ? std::in_range<int>(value.get<std::uint64_t>())
             : value.is_number_integer() && std::in_range<int>(value.get<std::int64_t>()),
         number);
  }

 private:
  template <class Value>
  void take(const Json& value, bool fits, Value& into) {
    whole = whole && fits;
    if (fits) into = value.get<Value>();
  }
};

Error invalid_orders(const char* why) { return {Code::kInvalidArgument, why}; }

}  // namespace

std::string encode(const AgentOrders& orders) {
  ToJson all, job;
  members_of_orders(all, orders);
  members_of_job(job, orders.job);
  all.object["job"] = std::move(job.object);
  all.object["version"] = TUTTI_VERSION;
  // An environment need not be UTF-8, JSON has to be: what is not, is lost.
  return all.object.text();
}

Result<AgentOrders> parse_orders(std::string_view line) {
  const Json object = Json::parse(line).value_or(nullptr);
  if (!object["version"].is_string() || !object["job"].is_object())
    return invalid_orders("what came is no job; it is for tutti run --hosts to start an agent");
  const auto version = object["version"].get<std::string>();
  if (version != TUTTI_VERSION) {
    return Error{Code::kMismatch, "the launcher has Tutti " + version + ", this host " +
                                      TUTTI_VERSION + "; install the same on all hosts"};
  }
  AgentOrders orders;
  FromJson all{object}, its_job{object["job"]};
  members_of_orders(all, orders);
  members_of_job(its_job, orders.job);
  if (!all.whole || !its_job.whole)
    return invalid_orders("a job in which a part is missing, or of another kind");
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
