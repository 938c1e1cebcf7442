// The rules that hold where nothing was measured. `docs/decisions/0012-who-chooses.md` has
// measurements, of 2 to 8 ranks on 2 CPUs.
#include <algorithm>
#include <limits>

#include "planner/planner.h"
#include "planner/tuning_table.h"

namespace tutti::planner {
namespace {

/// Beyond it two shots win: one shot makes every rank read every rank's whole message. With more
/// ranks than CPUs that is weighed against one more round of switches.
std::size_t one_shot_bytes(int rank_count) {
  return rank_count <= 4 ? 16384
         : rank_count <= 8
             ? 8192
             : std::min<std::size_t>(4096, 65536 / static_cast<std::size_t>(rank_count));
}

/// Where ranks share CPUs a plan's rounds cost a switch to every rank. The longest packets were
/// measured with 4 and 8 ranks on 2 CPUs.
bool long_packets_win(int rank_count, bool oversubscribed) {
  return oversubscribed && rank_count > 2 && rank_count <= 8;
}

/// Bytes up to which messages in plain buffers are packets. Between two ranks one shot moves no
/// more than two do, and the kernel's copies of a plan cost a system call each: the decision has
/// the measurements. More ranks with a CPU each were not measured with longer packets.
std::size_t plain_eager_bytes(Collective collective, int rank_count, bool oversubscribed) {
  if (long_packets_win(rank_count, oversubscribed)) return 65536;
  if (rank_count > 2) return one_shot_bytes(rank_count);
  return collective == Collective::kReduceScatter ? 32768 : 65536;
}

/// Bytes up to which messages in mapped buffers are packets. Where ranks share CPUs a packet's
/// rooted call costs no switch. In an all-reduce every rank reduces all of it.
///
/// A rooted packet lets the root, or the ranks that send, run ahead; a plan joins all ranks.
/// Measured on 2 ranks, time by packet / by plan: rooted ones of 8 KiB 0.45 to 0.60, of 16 KiB 0.94
/// to 1.16, a gather 0.69; the others of 2 KiB 0.55 to 0.76, and about 1 between CPUs that are far
/// from each other; of 4 KiB 0.75 to 0.93, and 1.3 there.
std::size_t mapped_eager_bytes(Collective collective, int rank_count, bool oversubscribed) {
  const std::size_t most = one_shot_bytes(rank_count);
  if (long_packets_win(rank_count, oversubscribed)) {
    if (collective != Collective::kAllReduce) return 65536;
    return rank_count <= 4 ? 32768 : most;
  }
  if (oversubscribed) return most;
  if (collective == Collective::kGather) return std::min<std::size_t>(16384, most);
  if (has_root(collective)) return std::min<std::size_t>(8192, most);
  // Not measured where more ranks have a CPU each: every rank reads what all others give.
  return std::min<std::size_t>(rank_count > 2 ? 1024 : 2048, most);
}

std::string_view large(Collective collective, int n, bool mapped) {
  // Between two ranks one shot moves as much as two do, with half the waits. Mapped, two shots move
  // less.
  if (collective == Collective::kAllReduce)
    return n == 1 || (n == 2 && !mapped) ? "one_shot" : "two_shot";
  if (collective == Collective::kBroadcast) return n <= 2 || !mapped ? "direct" : "two_shot";
  // With slots two shots between two ranks send half as much again. Measured: 256 KiB 34 us and 30,
  // 16 MiB 3.3 ms and 2.9. Three ranks on 2 CPUs, time of direct / of two_shot, 64 KiB to 2 MiB:
  // 0.75 to 0.79; four: 0.60 to 1.13. Mapped, all share the arithmetic.
  if (collective == Collective::kReduce)
    return n == 1 || (n <= 3 && !mapped) ? "direct" : "two_shot";
  // As a reduce; direct has n/2 times the additions. Measured on 2 CPUs, time of direct / of
  // two_shot, mapped: 2 ranks 4.7 (64 KiB) to 1.02 (8 MiB), 3 ranks 1.4 and 1.03 (256 KiB, 8 MiB),
  // 4 ranks 1.2 and 1.1. Plain: 0.32 to 0.42, 0.52 to 0.76, 0.76 to 1.3 (4 ranks, 1 MiB).
  if (is_scan(collective)) return n == 1 || (n <= 4 && !mapped) ? "direct" : "two_shot";
  return "direct";
}

/// Where ranks share CPUs, a plan with fewer waits wins while messages are small, though one rank
/// does most of the work. Measured on 2 CPUs, medians of interleaved rounds, mapped, time of direct
/// / of two_shot: reduce of 32 KiB 0.70 (3 ranks), 0.56 to 0.83 (4), 0.77 and 0.83 (8), plain 0.50
/// to 0.67, of 128 KiB 1.01 and 1.11 (4); broadcast of 32 KiB 0.96 (3), 0.70 and 0.74 (4), 0.90 and
/// 0.94 (8), of 128 KiB 1.45 (8).
constexpr std::size_t kOversubscribedOneShotBytes = 32768;

}  // namespace

std::vector<Range> built_in_ranges(Collective collective, bool mapped, int rank_count,
                                   int usable_cpus) {
  const bool oversubscribed = rank_count > usable_cpus;
  const std::string name(large(collective, rank_count, mapped));
  const bool one_shot_wins =
      oversubscribed && (collective == Collective::kReduce || collective == Collective::kBroadcast);
  const std::string small(one_shot_wins ? "direct" : name);
  const std::size_t eager = mapped ? mapped_eager_bytes(collective, rank_count, oversubscribed)
                                   : plain_eager_bytes(collective, rank_count, oversubscribed);
  const std::size_t small_up_to = small == name ? 0 : kOversubscribedOneShotBytes;
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  std::vector<Range> ranges;
  for (const std::size_t up_to :
       {std::min(eager, small_up_to), std::max(eager, small_up_to), kAll}) {
    if (up_to == 0) continue;
    Range& range = ranges.emplace_back(Range{up_to, {}});
    if (up_to <= eager) range.ways.push_back({std::string(kEagerName), 1, 0});
    range.ways.push_back({up_to <= small_up_to ? small : name, 1, 0});
  }
  return ranges;
}

std::size_t built_in_read_from_bytes(Collective collective) {
  return reduces(collective) ? std::numeric_limits<std::size_t>::max() : std::size_t{16} << 10;
}

/// A packet takes one hop, and all ranks send to all. That is worth it while what a host sends
/// takes no longer than one more hop would.
std::vector<Range> network_ranges(const std::vector<int>& hosts, const NetworkCost& cost) {
  const auto most = static_cast<double>(std::max<std::size_t>(1, most_pairs_across(hosts)));
  const double bytes = cost.link.latency_us * cost.link.gigabytes_per_second * 1e3 / most;
  return {{static_cast<std::size_t>(bytes), {{std::string(kEagerName), 1, 0}}},
          {std::numeric_limits<std::size_t>::max(), {}}};
}

}  // namespace tutti::planner
