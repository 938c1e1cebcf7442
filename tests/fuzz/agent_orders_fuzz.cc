// Any line as the orders of an agent (`tutti run --hosts`): what is taken has possible ranks and
// times, and is the same after it is encoded again.
#include <nlohmann/json.hpp>

#include "fuzz/frames.h"
#include "tools/run/orders.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  using tutti::fuzz::require;
  const auto orders = tools::parse_orders({reinterpret_cast<const char*>(data), size});
  if (!orders) {
    require(!orders.error().what.empty(), "an error without a text");
    return 0;
  }
  const tools::Job& job = orders->job;
  require(job.first_rank >= 0 && job.local_rank_count >= 1, "impossible ranks");
  require(job.first_rank + job.local_rank_count <= job.rank_count &&
              job.rank_count <= tools::kMostJobRanks,
          "ranks that the job does not have");
  require(orders->grace_seconds >= 0 && orders->grace_seconds <= tools::kLongestGraceSeconds,
          "an impossible time");
  // 4294967297 is not 1, and 5e56 no int.
  const auto said =
      nlohmann::json::parse(std::string_view(reinterpret_cast<const char*>(data), size)).at("job");
  require(said.at("rank_count") == job.rank_count && said.at("first_rank") == job.first_rank &&
              said.at("local_rank_count") == job.local_rank_count &&
              said.at("master_port") == job.master_port,
          "other numbers than were sent");
  const std::string again = encode(*orders);
  require(again.find('\n') == std::string::npos, "orders of several lines");
  const auto same = tools::parse_orders(again);
  require(same && encode(*same) == again, "they change on their way");
  return 0;
}
