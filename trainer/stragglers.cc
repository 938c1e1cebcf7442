#include "trainer/stragglers.h"

#include <algorithm>

namespace tutti::trainer {

Result<Straggler> find_straggler(Communicator& comm, const Counters& before, const Spent& spent) {
  TUTTI_TRY(const Counters after, comm.counters());
  const std::size_t ranks = after.waits.size();
  const auto in_calls = static_cast<double>((after.in_calls - before.in_calls).count());
  // By rank: the share of this rank's time that was lost to it, and the calls.
  std::vector<double> sums(2 * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto waited =
        static_cast<double>((after.waits[rank].time - before.waits[rank].time).count());
    sums[rank] = waited / std::max(in_calls, 1.0) * spent.idle_seconds / spent.seconds;
    sums[ranks + rank] = static_cast<double>(after.waits[rank].calls - before.waits[rank].calls);
  }
  TUTTI_RETURN_IF_ERROR(
      comm.all_reduce(sums.data(), sums.data(), sums.size(), DataType::kFloat64, ReduceOp::kSum));
  const auto slowest = static_cast<std::size_t>(
      std::max_element(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(ranks)) -
      sums.begin());
  if (sums[slowest] <= 0) return Straggler{};
  const auto others = static_cast<double>(ranks - 1);
  const auto calls = static_cast<double>(after.calls() - before.calls());
  return Straggler{.rank = static_cast<int>(slowest),
                   .last_share = sums[ranks + slowest] / others / std::max(calls, 1.0),
                   .time_share = sums[slowest] / others};
}

}  // namespace tutti::trainer
